// SPDX-License-Identifier: Apache-2.0
// Which ops of PyTorch the boxed kernel takes.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>

#include <functional>
#include <string>

namespace spmdx::bridge {

// Registers the boxed kernel for this op: from now on it is recorded as one node, and not as the ops that PyTorch's
// kernel for all devices would call.
void record_whole(const c10::OperatorHandle& op);

// Whether Python composes an op of others. Asked for ops without a rule, with the name ("aten::renorm") of the op and
// of its variant without writes, which may be the op itself.
using Composes = std::function<bool(const std::string& op, const std::string& functional)>;
// Registers the boxed kernel for all ops of ATen that it can record, except those that are `composed`. Called once.
void register_all(const Composes& composed);

}  // namespace spmdx::bridge
