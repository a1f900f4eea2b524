// SPDX-License-Identifier: Apache-2.0
// Ops that are computed at once, on the CPU.
#pragma once
#include <ATen/core/Tensor.h>

#include "bridge/record/call/op_info.h"

namespace spmdx::bridge {

// The values of a tensor of the device, of which others may be part unless they are written to; any other as it is.
at::Tensor on_host(const at::Tensor& tensor, bool written);
// Runs the op on the CPU with the operands' values and wraps what it gives; writes go back to the operands.
void run_on_host(const OpInfo& info, Stack* stack);

}  // namespace spmdx::bridge
