# SPDX-License-Identifier: Apache-2.0
"""What importing spmdx does once: its settings are read, and PyTorch is taught."""

import atexit
import os
from collections.abc import Mapping
from typing import Any

import spmdx._C as _C
from spmdx import errors
from spmdx._base import logs, progress
from spmdx._checkpoint import protocol
from spmdx._compile import backend
from spmdx._compiling import in_force
from spmdx._machine.in_use import set_topology
from spmdx._start import plan_files, settings
from spmdx._world import hardware, processes

_has_started = False


def _first_use() -> None:
    """Before the first step."""
    processes.join()
    progress.watch_planning()
    in_force.start()


def start(public: Mapping[str, Any]) -> None:
    """Does it, unless it was done: ``importlib.reload(spmdx)`` does none of it again.

    Args:
        public: the names of the package.
    """
    global _has_started
    if _has_started:
        return
    _has_started = True
    _C.set_libraries(list(errors.OWN))
    _C.set_name_of_files(errors.name_of_file)
    settings.check_environment()
    settings.check_progress()
    logs.install(settings.wanted_log())
    _C.log_plans(logs.log_plan)
    _C.set_before_first_use(_first_use)
    atexit.register(progress.stop_watching)
    hardware.choose_by_environment()
    protocol.install()
    backend.install(public)
    plans = plan_files.folder_of_plans()
    version = plan_files.version() if plans else ""
    _C.configure(dump_dir=settings.dump_folder(), plans=plans, version=version)
    if os.environ.get("SPMDX_TOPOLOGY"):
        set_topology(os.environ["SPMDX_TOPOLOGY"])
    _C.set_checks(**settings.wanted_checks())
    _C.set_fallbacks_are_errors(settings.wants_fallback_errors())
