// SPDX-License-Identifier: Apache-2.0
// Ops that are computed at once, on the CPU.
#pragma once
#include <ATen/core/Tensor.h>

#include "bridge/record/call/op_info.h"

namespace spmdx::bridge {

// A lazy tensor's values on the CPU, in memory that others may share unless `written`; any other tensor as it is.
at::Tensor on_host(const at::Tensor& tensor, bool written);
// Runs the op on the CPU now. Replaces the arguments on the stack by its results, copied to the device, and copies back
// what the op has written to operands.
void run_on_host(const OpInfo& info, Stack* stack);

}  // namespace spmdx::bridge
