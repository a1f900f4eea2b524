// SPDX-License-Identifier: Apache-2.0
// DeviceKinds: what a kind runs. Numbers of Python have the dtypes of the tensors that they meet.
#include "passes/settings/device_kinds.h"

#include <algorithm>

namespace spmdx {

bool DeviceKind::runs(const Call& call) const {
  const auto known = [&](const TensorType& type) {
    return dtypes.empty() || type.wrapped_number || type.dtype == DType::unknown || dtypes.contains(type.dtype);
  };
  return runs(call.op) && std::ranges::all_of(call.inputs, known) && std::ranges::all_of(call.outputs, known);
}

}  // namespace spmdx
