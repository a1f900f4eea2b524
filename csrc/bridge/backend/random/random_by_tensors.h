// SPDX-License-Identifier: Apache-2.0
// Random numbers on an accelerator.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>

#include "bridge/backend/random/random_region.h"

namespace spmdx::bridge {

// The same numbers from ATen's ops, for an accelerator. Null for a distribution whose numbers may differ there: one
// that takes more than exact arithmetic.
using FillByTensors = std::function<at::Tensor(const Region& region, c10::ScalarType dtype, const ElementWords& draw,
                                               std::span<const Param> params)>;
FillByTensors prepare_by_tensors(const Call& call);

}  // namespace spmdx::bridge
