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
DIGITS = "PyTorch's formula adds up in f32 on the CPU, in the tensors' own dtype on other devices"
EXCEPTIONS_IN_16_BITS = {
    f"nn.functional.linear_cross_entropy.chunked_{how}": DIGITS for how in ("none", "sum", "mean")
} | {"float_power": "gradients beyond f16: of an infinite sum, parts are infinite of both signs"}

# Entries some of whose results are not expected to lie as eager's do (layout_oracle.py).
LAYOUT_EXCEPTIONS = {
    "fft.ifft": "of expanded operands, the order of strides that are equal is left to a sort",
    "ldexp": "of complex numbers: eager promotes the power in between",
    "linalg.lstsq": "eager leaves gaps between solutions, which a result of the host loses",
    "linalg.lstsq.grad_oriented": "as linalg.lstsq",
    "nn.functional.dropout": "the gradient lies as eager's mask does: as its input, not as rows",
    "nn.functional.normalize": "the stride of a size of 1 in a gradient",
    "nn.functional.scaled_dot_product_attention": "eager's choice of a kernel depends on strides, "
    "and each lays out its gradients in its own way; recorded is always one",
}

# Entries some of whose kernels read slices wrongly, and are called by nobody (slice_oracle.py).
OWN_KERNEL = "the device has a kernel of its own"
SLICE_EXCEPTIONS = {
    "nn.functional.ctc_loss": OWN_KERNEL,
    "nn.functional.embedding_bag": "the device puts it together from other ops",
}


def reason_for(suite: str, entry: str, dtype: str) -> str | None:
    """Why an entry of a suite of run.py need not pass in a dtype, as ``bf16``; None if it must."""
    of_suite = {"layouts": LAYOUT_EXCEPTIONS, "slices": SLICE_EXCEPTIONS}
    listed = EXCEPTIONS | of_suite.get(suite, {})
    if dtype in ("bf16", "f16"):
        listed |= EXCEPTIONS_IN_16_BITS
    return listed.get(entry)
