// SPDX-License-Identifier: Apache-2.0
// Which ops of PyTorch the boxed kernel takes.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>

#include <functional>
#include <string>

namespace spmdx::bridge {

// From now on the op is one node, where its kernel for any device would have been taken apart.
void record_whole(const c10::OperatorHandle& op);

// Called with an op without a rule, as "aten::renorm", and its variant without writes, which may be itself: whether
// somebody else composes it of other ops.
using Composes = std::function<bool(const std::string& op, const std::string& functional)>;
// Every op of the dispatcher but those composed otherwise. Once.
void register_all(const Composes& composed);

}  // namespace spmdx::bridge
