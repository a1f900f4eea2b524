// SPDX-License-Identifier: Apache-2.0
// Arguments of an ATen call: as IR arguments, and as the words of an interning key.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/SmallVector.h>

#include "bridge/record/call/op_info.h"
#include "runtime/data/backend.h"

namespace spmdx::bridge {

using Key = c10::SmallVector<uint64_t, 96>;
using IValues = c10::ArrayRef<c10::IValue>;

// Appends the 64-bit words of one argument that is not a tensor. Two calls have equal keys if they have the same op,
// tensors of the same declared layouts, and other arguments that differ in real parameters only.
void add_words(Key& key, ArgumentKind kind, const c10::IValue& value, bool constant_reals);
// Appends the words of a tensor: its type and declared layout. `host_scalar`: it is a number on the CPU.
void add_tensor(Key& key, const at::Tensor& tensor, bool host_scalar);

// The value as a list of ints (an int makes a list of one), as an int, and as a double.
std::vector<int64_t> int_list(const c10::IValue& value);
int64_t int_value(const c10::IValue& value);
double real_value(const c10::IValue& value);
// Appends `value` if to_arg makes a RealParam of it: it is a float, and `constant_reals` is false.
void add_params(std::vector<Param>& params, ArgumentKind kind, const c10::IValue& value, bool constant_reals);
// The argument of the IR for one that is not a tensor. `next_param` counts the parameters so far. Throws ShardingError
// for an argument that a graph cannot hold.
Arg to_arg(ArgumentKind kind, const c10::IValue& value, bool constant_reals, uint32_t& next_param);

}  // namespace spmdx::bridge
