// SPDX-License-Identifier: Apache-2.0
// The OpInfo of an op, derived once from its schema.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>

#include "bridge/record/call/op_info.h"

namespace spmdx::bridge {

bool mentions_tensor(const c10::Argument& argument);  // is a tensor, perhaps optional, or a list of tensors

// What recording needs to know of this op. Cached until the op is taken back; the reference is valid until the process
// ends. REQUIRES: the recorder's lock.
const OpInfo& op_info(const c10::OperatorHandle& op);

}  // namespace spmdx::bridge
