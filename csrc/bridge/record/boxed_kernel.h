// SPDX-License-Identifier: Apache-2.0
// The boxed kernel behind every op of the device: records it as a node, as steps of a view, or as its handler says.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>

#include <memory>
#include <vector>

#include "bridge/record/call/ivalue.h"
#include "bridge/record/call/op_info.h"
#include "bridge/tensor/meta.h"

namespace spmdx::bridge {

// The kernel itself, which PyTorch's dispatcher calls. Replaces the arguments on the stack by results.
void record_boxed(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack);

// The values of a recorded op, numbered from `first` on, and the layouts of the tensors of each result of its schema.
struct Recorded {
  ValueId first = kNone;
  std::shared_ptr<const std::vector<std::vector<MetaRef>>> results;
};

// Records an op as one node; equal calls share one Call. REQUIRES: the op writes nothing, and is not view-like.
Recorded record_op(const OpInfo& info, IValues args);
// Records any op as `record_boxed` does, but does not ask its handler. Replaces the arguments on the stack by results.
void record_any_op(const OpInfo& info, Stack* stack);

}  // namespace spmdx::bridge
