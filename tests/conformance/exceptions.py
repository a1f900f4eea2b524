# SPDX-License-Identifier: Apache-2.0
"""Entries that are not expected to pass, each with its reason."""

EXCEPTIONS = {
    "to_sparse": "makes a sparse tensor: the device has dense ones only",
    "sparse.mm.reduce": "takes a sparse tensor: the device has dense ones only",
    "sparse.sampled_addmm": "takes a sparse tensor: the device has dense ones only",
    "_segment_reduce.offsets": "in even sizes op_db's segments reach beyond the data",
    "_segment_reduce.lengths": "in even sizes op_db's segments reach beyond the data",
    "SparseAdam": "takes sparse gradients: the device has dense ones only",
}
