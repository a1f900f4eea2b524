// SPDX-License-Identifier: Apache-2.0
// The facts of an op, worked out once from its schema.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>

#include "bridge/record/call/op_info.h"

namespace spmdx::bridge {

bool mentions_tensor(const c10::Argument& argument);  // a tensor, perhaps optional, or a list of them

// Cached; the reference stays valid for the process' life. REQUIRES: the recorder's lock.
const OpInfo& op_info(const c10::OperatorHandle& op);

}  // namespace spmdx::bridge
