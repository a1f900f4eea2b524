# SPDX-License-Identifier: Apache-2.0
"""Programs that record what op_db does not: optimizers, attention's parts, casts, batch norm."""

from collections.abc import Callable
from typing import Any

MORE: dict[str, Callable[[int], Any]] = {}
