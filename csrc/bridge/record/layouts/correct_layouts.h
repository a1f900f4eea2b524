// SPDX-License-Identifier: Apache-2.0
// The strides of results, where kernels differ from meta kernels.
#pragma once
#include "bridge/record/call/ivalue.h"
#include "bridge/record/call/op_info.h"
#include "bridge/record/layouts/corrections.h"

namespace spmdx::bridge {

void correct_layouts(const OpInfo& info, IValues args, Results& results);

}  // namespace spmdx::bridge
