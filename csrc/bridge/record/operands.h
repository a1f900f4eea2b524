// SPDX-License-Identifier: Apache-2.0
// Takes the arguments of an op from the stack, and puts results there.
#pragma once
#include <ATen/core/stack.h>

#include "bridge/python/errors.h"
#include "bridge/python/source.h"
#include "bridge/record/call/ivalue.h"
#include "bridge/record/call/op_info.h"
#include "bridge/tensor/meta.h"

namespace spmdx::bridge {

// The graph value of a lazy tensor, or of a number on the CPU. Throws as eager does for a tensor of another device.
ValueId operand(const at::Tensor& tensor);
// Throws as eager does for a tensor of another device.
[[noreturn]] void refuse_device(const at::Tensor& tensor);
// Makes `value`, cast to the dtype of `tensor`, the content of `tensor`. Throws if the shapes differ, unless `resize`:
// a tensor of `out=` takes the new shape.
void assign(const at::Tensor& tensor, ValueId value, bool resize);
// A new tensor that holds `value` in this layout. REQUIRES: its offset is 0.
at::Tensor wrap_value(ValueId value, MetaRef meta);
// A new contiguous tensor that holds `value`.
at::Tensor wrap_value(ValueId value);

// The argument called `name`; None if the op has no such argument.
c10::IValue named(const OpInfo& info, IValues args, const char* name);
// The op's arguments, still on the stack.
IValues arguments(const OpInfo& info, const Stack& stack);
// Drops the arguments and pushes one result.
void finish(const OpInfo& info, Stack* stack, c10::IValue result);
// Drops the arguments and pushes several results. Returns true, so that a handler may return this call.
bool finish_all(const OpInfo& info, Stack* stack, Stack results);
// The op of this name ("aten::mm") and overload. Throws if PyTorch has none.
const OpInfo& find_op(const char* name, const char* overload = "");

// Runs `work`; an exception gets the user's line and the name of the op before its message.
template <class Work>
void led(const OpInfo& info, Work work) {
  try {
    work();
  } catch (...) {
    std::rethrow_exception(lead_error(std::current_exception(), current_source(), info.name));
  }
}

}  // namespace spmdx::bridge
