// SPDX-License-Identifier: Apache-2.0
// What ops and dtypes are called here, from what PyTorch calls them, and back.
#pragma once
#include <ATen/core/operator_name.h>
#include <c10/core/ScalarType.h>

#include <string>
#include <string_view>

#include "base/types.h"

namespace spmdx::bridge {

// "aten.add.Tensor" for an operator name, and back. The overload "default" is left out.
std::string op_name(const c10::OperatorName& name);
c10::OperatorName operator_name(std::string_view op);

DType to_dtype(c10::ScalarType type);
c10::ScalarType to_scalar_type(DType dtype);

}  // namespace spmdx::bridge
