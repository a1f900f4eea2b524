# SPDX-License-Identifier: Apache-2.0
"""``python -m spmdx``: what a report of a bug needs to say. It ends with 1 if nothing runs."""

import sys

import torch

import spmdx
from spmdx._start.environment import rows


def _trial() -> str:
    """What became of a product on the devices; "equal to eager" if all is well."""
    try:
        count = spmdx.runtime.global_runtime_device_count()
        mesh = spmdx.Mesh(range(count), (count,), ("x",))
        a, b = torch.arange(35.0).reshape(7, 5), torch.arange(15.0).reshape(5, 3)
        cut = spmdx.mark_sharding(a.to("spmdx"), mesh, ("x", None))
        computed = (cut @ b.to("spmdx")).cpu()
        return "equal to eager" if torch.equal(computed, a @ b) else "NOT EQUAL TO EAGER"
    except Exception as error:  # whatever it is, it belongs into the report
        return f"{type(error).__name__}: {error}"


def main() -> int:
    """Print the report.

    Returns:
        0 if a program ran and computed what eager does, else 1.
    """
    found = dict(rows())
    count, kind = spmdx.runtime.global_runtime_device_count(), spmdx.runtime.device_type()
    found["devices"] = f"{count} ({kind}), of {spmdx.runtime.process_count()} processes"
    found["a product on them"] = trial = _trial()
    width = max(map(len, found))
    for what, value in found.items():
        print(f"{what:{width}}  {value}")
    return int(trial != "equal to eager")


if __name__ == "__main__":
    sys.exit(main())
