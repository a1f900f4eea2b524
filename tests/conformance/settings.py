# SPDX-License-Identifier: Apache-2.0
"""The meshes and sizes that conformance is judged on."""

import dataclasses

import torch

# What op_db calls extra small, small, medium and large. Torch's test of DTensor has the even ones.
EVEN = {"XS": 2, "S": 4, "M": 12, "L": 24}
UNEVEN = {"XS": 3, "S": 5, "M": 10, "L": 20}


@dataclasses.dataclass(frozen=True)
class Setting:
    """A mesh, the sizes of the samples, and how many of them and of their placements are run.

    Attributes:
        mesh: devices along each axis.
        sizes: ``EVEN`` or ``UNEVEN``.
        most_samples: of an entry; None for all.
        most_placements: of a sample: every one of a single tensor first, then draws; None for all.
    """

    mesh: tuple[int, ...]
    sizes: dict[str, int]
    most_samples: int | None = 24
    most_placements: int | None = 12


YARDSTICK = "4 even"  # what DTensor was measured on
SETTINGS = {
    YARDSTICK: Setting((4,), EVEN, None, 64),
    "2 even": Setting((2,), EVEN),
    "3 even": Setting((3,), EVEN),
    "2x2 even": Setting((2, 2), EVEN),
    "2 uneven": Setting((2,), UNEVEN),
    "3 uneven": Setting((3,), UNEVEN),
    "4 uneven": Setting((4,), UNEVEN),
    "2x3 uneven": Setting((2, 3), UNEVEN),
}
# "4 even quick" and the like: a few samples and placements of each entry.
SETTINGS_QUICK = {
    f"{key} quick": dataclasses.replace(setting, most_samples=4, most_placements=4)
    for key, setting in SETTINGS.items()
}
DTYPES = {
    "f32": torch.float32,
    "bf16": torch.bfloat16,
    "f16": torch.float16,
    "i64": torch.int64,
    "bool": torch.bool,
    "c64": torch.complex64,
}
