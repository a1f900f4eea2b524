# SPDX-License-Identifier: Apache-2.0
"""What tensors take in the memory of a TPU, which keeps them in tiles of its registers."""

import itertools
import math

from spmdx._segments.segment import DTYPES, Type

LANES = 128
SUBLANES = 8  # of 32 bits
LEAST_BYTES = 512


def tiled_bytes(kind: Type) -> int:
    """The bytes of a tensor in tiles of two of its dims, padded to whole ones.

    Args:
        kind: of the tensor.

    Returns:
        The bytes in the layout that pads least: XLA chooses which dims are the minor ones.

    Example:
        >>> tiled_bytes(Type("f32", (100, 3)))
        2048
        >>> tiled_bytes(Type("f32", (1024, 1024))) == 1024 * 1024 * 4
        True

    Source: the tiled layouts of XLA, https://openxla.org/xla/tiled_layout.
    """
    itemsize = min(DTYPES[kind.dtype].itemsize, 4)
    halves = DTYPES[kind.dtype].itemsize // itemsize  # 64 bits are two tensors of 32
    count = math.prod(kind.shape)
    if sum(size != 1 for size in kind.shape) < 2:
        return halves * _line(count, itemsize)
    pairs = itertools.permutations(kind.shape, 2)
    return halves * min(count // (m * n) * _tiles(m, n, itemsize) for m, n in pairs) if count else 0


def _line(size: int, itemsize: int) -> int:
    least = max(LEAST_BYTES // itemsize, LANES)
    most = LANES * SUBLANES * 4 // itemsize
    tile = min(max(least, 1 << (size - 1).bit_length()), most) if size else least
    return -(-size // tile) * tile * itemsize


def _tiles(rows: int, columns: int, itemsize: int) -> int:
    high = max(min(1 << (rows - 1).bit_length(), SUBLANES), 4 // itemsize)
    return -(-rows // high) * high * -(-columns // LANES) * LANES * itemsize
