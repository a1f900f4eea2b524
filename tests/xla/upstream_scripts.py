# SPDX-License-Identifier: Apache-2.0
"""Scripts among PyTorch/XLA's examples on spmdx.torch_xla, each beside its own model on plain CPU.

    python tests/xla/upstream_scripts.py CHECKOUT [--devices 8]

A script runs as it stands, in a process of its own. What it sets on itself is smaller here
(images, batches, layers, steps), and its data are random instead of zeros, for losses that mean
something. Each step's loss is compared with that of a plain loop from the same weights. Needs
torchvision.
"""

import argparse
import copy
import importlib.util
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

SCRIPTS = {
    "data_parallel/train_resnet_spmd_data_parallel.py": "TrainResNetBase",
    "fsdp/train_decoder_only_fsdp_v2.py": "TrainDecoderOnlyBase",
    "eager/train_decoder_only_eager_spmd_data_parallel.py": "TrainDecoderOnlyBase",
}
SMALLER = {"img_dim": 64, "batch_size": 4, "num_steps": 4, "seq_len": 32}
NARROWER = {"hidden_size": 64, "intermediate_size": 128, "vocab_size": 320}
TOLERANCE = (
    1e-5  # relative. float64: ResNet-50 multiplies what is lost in a last bit by 10 to 100 a step
)


def torchvision_without_ops(torch):
    """Ops of torchvision's own library, which is built for CUDA; its models use none of them."""
    found = importlib.util.find_spec("torchvision")
    if found is None:
        sys.exit("torchvision is needed: pip install --no-deps torchvision pillow")
    meta = (Path(found.origin).parent / "_meta_registrations.py").read_text()
    library = torch.library.Library("torchvision", "DEF")
    for name in re.findall(r'register_(?:meta|fake)\("(?:torchvision::)?(\w+)"', meta):
        library.define(f"{name}(Tensor x) -> Tensor")
    return library


def smaller(base):
    """The first value that a training of class `base` gives to one of its sizes is the one here."""

    def set_size(self, name, value):
        if name in SMALLER and name not in vars(self):
            value = SMALLER[name]
        object.__setattr__(self, name, value)

    base.__setattr__ = set_size
    for default in base.__init__.__defaults__ or ():
        for name in NARROWER:
            if hasattr(default, name):
                setattr(default, name, NARROWER[name])


def random_batches(torch, utils):
    """What SampleGenerator is given as zeros is drawn instead."""
    original = utils.SampleGenerator.__init__

    def drawn(self, data, sample_count):
        draws = torch.Generator().manual_seed(7)
        images = data[0].is_floating_point()
        inputs = (
            torch.randn(data[0].shape, generator=draws)
            if images
            else data[0].random_(320, generator=draws)
        )
        target = data[1].random_(10 if images else 320, generator=draws)
        self.drawn = inputs, target
        original(self, (inputs, target), sample_count)

    utils.SampleGenerator.__init__ = drawn


def plain_losses(training, model):
    """Those of a plain loop on CPU."""
    import torch

    kind = type(training.optimizer)
    settings = {k: v for k, v in training.optimizer.defaults.items() if k in ("lr", "weight_decay")}
    optimizer = kind(model.parameters(), **settings)
    inputs, target = training.train_device_loader._loader.drawn
    losses = []
    for _ in range(training.num_steps):
        optimizer.zero_grad()
        output = model(inputs)
        loss = torch.nn.functional.cross_entropy(output.view(-1, output.shape[-1]), target.view(-1))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def run_script(checkout, name):
    """Runs one script; the exit status is 1 where its losses are not the plain ones."""
    from spmdx import torch_xla

    torch_xla.install()
    import torch
    import torch_xla.utils.utils as utils

    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    kept = torchvision_without_ops(torch) if "resnet" in name else None  # noqa: F841
    path = checkout / "examples" / name
    sys.path[:0] = [str(checkout / "examples")]
    module = __import__("train_resnet_base" if "resnet" in name else "train_decoder_only_base")
    base = getattr(module, SCRIPTS[name])
    smaller(base)
    random_batches(torch, utils)
    kept, losses = [], []
    start, step = base.start_training, base.step_fn

    def start_kept(self):
        kept.append(self)
        kept.append({key: value.cpu().clone() for key, value in self.model.state_dict().items()})
        start(self)

    def step_kept(self, data, target):
        losses.append(step(self, data, target))
        return losses[-1]

    base.start_training, base.step_fn = start_kept, step_kept
    sys.argv = [str(path)]
    runpy.run_path(str(path), run_name="__main__")
    training, state = kept
    expected = plain_losses(training, on_host(training, state))
    found = [loss.item() for loss in losses]
    worst = max(abs(a - b) / abs(b) for a, b in zip(found, expected, strict=True))
    print(f"RESULT {len(found)} losses {found[0]:.5f} ... {found[-1]:.5f}, apart {worst:.1e}")
    sys.exit(worst > TOLERANCE)


def on_host(training, state):
    """A model on CPU like the one trained, with the weights that `state` names."""
    model = training.model
    if hasattr(training, "config"):
        fresh = __import__("decoder_only_model").DecoderOnlyModel(copy.copy(training.config))
    else:
        fresh = __import__("torchvision").models.resnet50()
    names = [key for key, _ in fresh.state_dict().items()]
    assert len(names) == len(state), (type(model), len(names), len(state))
    fresh.load_state_dict({key: value for key, value in zip(names, state.values(), strict=True)})
    return fresh


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--devices", type=int, default=8)
    parser.add_argument("--script", choices=SCRIPTS)
    asked = parser.parse_args()
    checkout = asked.checkout.resolve()
    if asked.script:
        run_script(checkout, asked.script)
    failed = 0
    for name in SCRIPTS:
        command = [sys.executable, __file__, str(checkout), "--script", name]
        environment = {
            **os.environ,
            "SPMDX_NUM_DEVICES": str(asked.devices),
            "OMP_NUM_THREADS": "1",
        }
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
        said = lines[-1][7:] if lines else done.stderr[-2000:]
        failed += done.returncode != 0
        print(f"{'equal' if done.returncode == 0 else 'FAILED':7} {name}: {said}", flush=True)
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
