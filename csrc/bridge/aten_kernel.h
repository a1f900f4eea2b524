// SPDX-License-Identifier: Apache-2.0
// Kernels of the ATen backend: prepared ATen calls, and the ops of our own that ATen lacks.
#pragma once
#include <memory>
#include <string_view>

#include "runtime/data/backend.h"

namespace spmdx::bridge {

// A call of the op `call.op` through the dispatcher.
std::unique_ptr<Kernel> prepare_aten(const Call& call);

// Whether the kernel of an op is given contiguous operands alone: it would read others wrongly, or refuse them.
bool needs_contiguous(std::string_view op);

// Ops named "spmdx.…"; null for any other.
std::unique_ptr<Kernel> prepare_own(const Call& call);

// Ops that draw numbers by the global index of an element; null for any other.
std::unique_ptr<Kernel> prepare_random(const Call& call);

}  // namespace spmdx::bridge
