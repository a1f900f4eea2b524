// SPDX-License-Identifier: Apache-2.0
// Shape inference: the declared layouts of an op's results, from those of its operands.
#pragma once
#include "bridge/record/call/ivalue.h"
#include "bridge/record/call/op_info.h"
#include "bridge/tensor/meta.h"

namespace spmdx::bridge {

// Per result of the schema its tensors (a list has several). Runs the op on meta tensors; where PyTorch has no meta
// kernel or refuses, on the CPU with zeros. Throws what the CPU kernel throws.
std::vector<std::vector<Meta>> infer(const OpInfo& info, IValues args);
// What of PyTorch's settings the answer depends on: the default dtype, and what convolutions are chosen by.
uint64_t settings_of_inference();

}  // namespace spmdx::bridge
