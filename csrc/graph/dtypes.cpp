// SPDX-License-Identifier: Apache-2.0
#include "graph/dtypes.h"

namespace spmdx {

std::set<DType> dtypes_of(const Call& call) {
  std::set<DType> found;
  for (const auto* types : {&call.inputs, &call.outputs})
    for (const TensorType& type : *types)
      if (!type.wrapped_number && type.dtype != DType::unknown) found.insert(type.dtype);  // unknown: no tensor
  return found;
}

}  // namespace spmdx
