// SPDX-License-Identifier: Apache-2.0
// The arguments of an op on the stack, and results put there.
#pragma once
#include <ATen/core/stack.h>

#include "bridge/python/errors.h"
#include "bridge/python/source.h"
#include "bridge/record/call/ivalue.h"
#include "bridge/record/call/op_info.h"
#include "bridge/tensor/meta.h"

namespace spmdx::bridge {

// The graph value of an operand: a lazy tensor or a number on the host. Throws as eager does for another device.
ValueId operand(const at::Tensor& tensor);
// Throws as eager does for a tensor of another device.
[[noreturn]] void refuse_device(const at::Tensor& tensor);
// `value` becomes the content of `tensor`, cast to its dtype. `resize`: it may change shape (an `out=` tensor).
void assign(const at::Tensor& tensor, ValueId value, bool resize);
// A fresh tensor laid out as `meta`, whose offset is 0.
at::Tensor wrap_value(ValueId value, MetaRef meta);
// A contiguous tensor of this value's type.
at::Tensor wrap_value(ValueId value);

// The argument called `name`; none if the op has no such argument.
c10::IValue named(const OpInfo& info, IValues args, const char* name);
// The op's arguments, still on the stack.
IValues arguments(const OpInfo& info, const Stack& stack);
// Drops the arguments and pushes one result.
void finish(const OpInfo& info, Stack* stack, c10::IValue result);
// The same for several results; true, as a handler says that it did its work.
bool finish_all(const OpInfo& info, Stack* stack, Stack results);
const OpInfo& find_op(const char* name, const char* overload = "");

// What `work` throws leads with the user's line and the op.
template <class Work>
void led(const OpInfo& info, Work work) {
  try {
    work();
  } catch (...) {
    std::rethrow_exception(lead_error(std::current_exception(), current_source(), info.name));
  }
}

}  // namespace spmdx::bridge
