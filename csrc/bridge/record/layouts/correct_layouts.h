// SPDX-License-Identifier: Apache-2.0
// Corrects the strides of results where kernels differ from meta kernels.
#pragma once
#include "bridge/record/call/ivalue.h"
#include "bridge/record/call/op_info.h"
#include "bridge/record/layouts/corrections.h"

namespace spmdx::bridge {

// Changes the strides that the meta kernel of this op gave to `results` to those that its kernel gives.
void correct_layouts(const OpInfo& info, IValues args, Results& results);

}  // namespace spmdx::bridge
