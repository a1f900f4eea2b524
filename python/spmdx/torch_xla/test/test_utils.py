# SPDX-License-Identifier: Apache-2.0
"""torch_xla.test.test_utils: lines that training scripts print, and where they write numbers."""

import datetime
from collections.abc import Mapping
from typing import Any

from spmdx.torch_xla.debug import metrics


def now(format: str = "%H:%M:%S") -> str:
    """The time of day as text.

    Args:
        format: as for ``strftime``.

    Returns:
        A text.
    """
    return datetime.datetime.now().strftime(format)


def print_training_update(
    device: Any,
    step: int,
    loss: float,
    rate: float,
    global_rate: float,
    epoch: int | None = None,
    summary_writer: Any = None,
) -> None:
    """Print a line about a step of training.

    Args:
        device: the device.
        step: the number of the step.
        loss: the loss.
        rate: samples a second.
        global_rate: samples a second since the start.
        epoch: the number of the epoch.
        summary_writer: also gets the rate.
    """
    head = "" if epoch is None else f"Epoch={epoch} "
    print(
        f"| Training Device={device} {head}Step={step} Loss={loss:.5f} Rate={rate:.2f} "
        f"GlobalRate={global_rate:.2f} Time={now()}",
        flush=True,
    )
    if summary_writer is not None:
        write_to_summary(summary_writer, dict_to_write={"examples/sec": rate})


def print_test_update(
    device: Any, accuracy: float | None, epoch: Any = None, step: Any = None
) -> None:
    """Print a line about a step of testing.

    Args:
        device: the device.
        accuracy: in percent; None prints none.
        epoch: the number of the epoch.
        step: the number of the step.
    """
    said = "" if accuracy is None else f" Accuracy={accuracy:.2f}"
    print(f"| Test Device={device} Step={step} Epoch={epoch}{said} Time={now()}", flush=True)


def get_summary_writer(logdir: str | None) -> Any:
    """A writer of TensorBoard for a folder; None where there is none.

    Args:
        logdir: the folder.

    Returns:
        A writer, or None.
    """
    if not logdir:
        return None
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(log_dir=logdir)


def write_to_summary(
    summary_writer: Any,
    global_step: int | None = None,
    dict_to_write: Mapping[str, float] | None = None,
    write_xla_metrics: bool = False,
) -> None:
    """Write numbers.

    Args:
        summary_writer: one of TensorBoard, or None, which does nothing.
        global_step: the number of the step.
        dict_to_write: by name, the numbers.
        write_xla_metrics: whether counters are written as well.
    """
    if summary_writer is None:
        return
    numbers = dict(dict_to_write or {})
    if write_xla_metrics:
        for name in metrics.counter_names():
            numbers[f"counters/{name}"] = float(metrics.counter_value(name) or 0)
    for name, value in numbers.items():
        summary_writer.add_scalar(name, value, global_step)


def close_summary_writer(summary_writer: Any) -> None:
    """Close a writer, if there is one.

    Args:
        summary_writer: one of TensorBoard, or None.
    """
    if summary_writer is not None:
        summary_writer.close()
