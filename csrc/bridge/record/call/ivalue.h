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

// Equal words: the same op, the same arguments but for real parameters, tensors of the same declared layout.
// Tensors are left to the caller (see `add_tensor`), which meets them in argument order.
void add_words(Key& key, Slot slot, const c10::IValue& value, bool constant_reals);
void add_tensor(Key& key, const at::Tensor& tensor, bool host_scalar);

std::vector<int64_t> int_list(const c10::IValue& value);
int64_t int_value(const c10::IValue& value);
double real_value(const c10::IValue& value);
// A Scalar or float of a recorded op; a RealParam unless `constant_reals`.
void add_params(std::vector<Param>& params, Slot slot, const c10::IValue& value, bool constant_reals);
// One argument that is not a tensor. `next_param` counts the parameters seen so far.
Arg to_arg(Slot slot, const c10::IValue& value, bool constant_reals, uint32_t& next_param);

}  // namespace spmdx::bridge
