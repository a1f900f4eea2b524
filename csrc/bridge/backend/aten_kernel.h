// SPDX-License-Identifier: Apache-2.0
// Kernels of the ATen backend: prepared calls of ops of PyTorch.
#pragma once
#include <memory>
#include <string_view>

#include "runtime/data/backend.h"

namespace spmdx::bridge {

// A kernel that calls `call.op` through PyTorch's dispatcher. Throws ShardingError if torch.library has taken it back.
std::unique_ptr<Kernel> prepare_aten(const Call& call);

// Whether operands of this op are made contiguous for its kernel, which would read others wrongly, or refuse them.
bool needs_contiguous(std::string_view op);

}  // namespace spmdx::bridge
