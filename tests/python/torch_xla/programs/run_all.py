# SPDX-License-Identifier: Apache-2.0
"""Runs all functions of the files beside this one, in one process on so many devices."""

import importlib
import json
import pathlib
import sys
import traceback

import torch
import torch_xla
import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr

HERE = pathlib.Path(__file__).parent


def main(out):
    xr.use_spmd()
    devices = xr.global_runtime_device_count()
    with open(out, "w") as lines:
        for file in sorted(HERE.glob("[a-z]*.py")):
            if file.stem in ("run_all", "common"):
                continue
            module = importlib.import_module(file.stem)
            for name, function in list(vars(module).items()):
                if getattr(function, "__module__", "") != file.stem or name.startswith("_"):
                    continue
                torch.manual_seed(0)
                xs.set_global_mesh(None)
                failed = ""
                try:
                    function(devices)
                except Exception:
                    failed = traceback.format_exc()
                torch_xla.sync(wait=True)
                lines.write(json.dumps([f"{file.stem}.{name}", failed]) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
