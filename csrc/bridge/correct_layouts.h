// SPDX-License-Identifier: Apache-2.0
// The strides of results, where kernels differ from meta kernels.
#pragma once
#include "bridge/corrections.h"
#include "bridge/ivalue.h"
#include "bridge/op_info.h"

namespace spmdx::bridge {

void correct_layouts(const OpInfo& info, IValues args, Results& results);

}  // namespace spmdx::bridge
