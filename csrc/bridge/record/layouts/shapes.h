// SPDX-License-Identifier: Apache-2.0
// Shape inference: the declared layouts of an op's results, from those of its operands.
#pragma once
#include "bridge/record/call/ivalue.h"
#include "bridge/record/call/op_info.h"
#include "bridge/tensor/meta.h"

namespace spmdx::bridge {

// The layouts of the tensors of each result of the schema (a list has several). Runs the op on meta tensors; where
// PyTorch has no meta kernel, or that throws, on zeros on the CPU. Throws what the CPU kernel throws.
std::vector<std::vector<Meta>> infer(const OpInfo& info, IValues args);
// The settings of PyTorch that `infer` depends on, as one word: the default dtype, and those that choose the kernel of
// a convolution.
uint64_t settings_of_inference();

}  // namespace spmdx::bridge
