// SPDX-License-Identifier: Apache-2.0
// The boxed kernel behind every op of the device: it becomes a node, steps of a view, or what its handler makes of it.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>

#include <memory>
#include <vector>

#include "bridge/record/call/ivalue.h"
#include "bridge/record/call/op_info.h"
#include "bridge/tensor/meta.h"

namespace spmdx::bridge {

void trace(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack);

// Values of a recorded op, per result of its schema.
struct Traced {
  ValueId first = kNone;
  std::shared_ptr<const std::vector<std::vector<MetaRef>>> results;
};

// Records an op without writes; equal calls share one Call. Not for view-like ops.
Traced record_op(const OpInfo& info, IValues args);
// The whole of a trace but for handlers: views, writes, plain ops. Replaces the arguments on the stack.
void trace_op(const OpInfo& info, Stack* stack);

}  // namespace spmdx::bridge
