# SPDX-License-Identifier: Apache-2.0
"""What importing spmdx does once: its settings are read, and PyTorch is taught.

A module of its own, so that ``importlib.reload(spmdx)`` does none of it again.
"""

import os

from spmdx import _C, _compile, _place, checkpoint_protocol, errors, settings
from spmdx.topology import set_topology


def start() -> None:
    _C.set_libraries(list(errors.OWN))
    settings.check_environment()
    _place.choose_by_environment()
    checkpoint_protocol.install()
    _compile.install()
    _C.configure(dump_dir=settings.dump_folder())
    if os.environ.get("SPMDX_TOPOLOGY"):
        set_topology(os.environ["SPMDX_TOPOLOGY"])
    _C.set_checks(**settings.wanted_checks())
    _C.set_fallbacks_are_errors(settings.wants_fallback_errors())


start()
