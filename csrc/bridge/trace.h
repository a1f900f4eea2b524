// SPDX-License-Identifier: Apache-2.0
// Parts of tracing that hand-written kernels and handlers share.
#pragma once
#include <functional>

#include "bridge/errors.h"
#include "bridge/ivalue.h"
#include "bridge/meta.h"
#include "bridge/source.h"

namespace spmdx::bridge {

using torch::jit::Stack;

// The boxed kernel behind every op of the device.
void trace(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack);
// From now on the op is one node, where its kernel for any device would have been taken apart (register.cpp).
void record_whole(const c10::OperatorHandle& op);

// Values of a recorded op, per result of its schema.
struct Traced {
  ValueId first = kNone;
  std::shared_ptr<const std::vector<std::vector<MetaRef>>> results;
};

// Records an op without writes; equal calls share one Call. Not for view-like ops.
Traced record_op(const OpInfo& info, IValues args);
// The whole of a trace but for handlers: views, writes, plain ops. Replaces the arguments on the stack.
void trace_op(const OpInfo& info, Stack* stack);
// What `work` throws leads with the user's line and the op.
template <class Work>
void led(const OpInfo& info, Work work) {
  try {
    work();
  } catch (...) {
    std::rethrow_exception(lead_error(std::current_exception(), current_source(), info.name));
  }
}
// Runs the op on the CPU with the operands' values and wraps what it gives; writes go back to the operands.
void run_on_host(const OpInfo& info, Stack* stack);

// The graph value of an operand: a lazy tensor or a number on the host. Throws as eager does for another device.
ValueId operand(const at::Tensor& tensor);
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

void add_factory_handlers();         // factory.cpp
void add_random_handlers();          // random.cpp
void add_copy_handlers();            // copy.cpp
void add_resize_handlers();          // resize.cpp
void add_data_dependent_handlers();  // data_dependent.cpp
void add_composite_handlers();       // composites.cpp
void add_embedding_bag_handlers();   // embedding_bag.cpp
void add_layer_handlers();           // layers.cpp
void add_dense_only_handlers();      // dense_only.cpp
void add_forward_mode_handlers();    // forward_mode.cpp
void add_gradient_handlers();        // gradients.cpp

// Called with an op without a rule, as "aten::renorm", and its variant without writes, which may be itself: whether
// somebody else composes it of other ops.
using Composes = std::function<bool(const std::string& op, const std::string& functional)>;
// Every op of the dispatcher but those composed otherwise (register.cpp). Once.
void register_all(const Composes& composed);

}  // namespace spmdx::bridge
