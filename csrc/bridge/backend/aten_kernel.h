// SPDX-License-Identifier: Apache-2.0
// Kernels of the ATen backend: prepared calls of ops of PyTorch.
#pragma once
#include <memory>
#include <string_view>

#include "runtime/data/backend.h"

namespace spmdx::bridge {

// A call of the op `call.op` through the dispatcher.
std::unique_ptr<Kernel> prepare_aten(const Call& call);

// Whether the kernel of an op is given contiguous operands alone: it would read others wrongly, or refuse them.
bool needs_contiguous(std::string_view op);

}  // namespace spmdx::bridge
