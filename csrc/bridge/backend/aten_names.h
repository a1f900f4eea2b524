// SPDX-License-Identifier: Apache-2.0
// Names of ops and dtypes: from PyTorch's to ours, and back.
#pragma once
#include <ATen/core/operator_name.h>
#include <c10/core/ScalarType.h>

#include <string>
#include <string_view>

#include "base/types.h"

namespace spmdx::bridge {

// "aten.add.Tensor" for aten::add.Tensor, and back. The overload without a name ("default" in Python) is left out.
std::string op_name(const c10::OperatorName& name);
c10::OperatorName operator_name(std::string_view op);

// Throws ShardingError for a dtype that spmdx does not have.
DType to_dtype(c10::ScalarType type);
c10::ScalarType to_scalar_type(DType dtype);  // REQUIRES: not DType::unknown

}  // namespace spmdx::bridge
