// SPDX-License-Identifier: Apache-2.0
// Corrects the dtypes of results, and which results there are, where kernels differ from meta kernels.
#pragma once
#include "bridge/record/call/ivalue.h"
#include "bridge/record/call/op_info.h"
#include "bridge/record/layouts/corrections.h"

namespace spmdx::bridge {

// Changes in `results` what the meta kernel of this op gave to what its kernel gives.
void correct_types(const OpInfo& info, IValues args, Results& results);

}  // namespace spmdx::bridge
