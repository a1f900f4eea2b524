// SPDX-License-Identifier: Apache-2.0
// Random numbers drawn on an accelerator.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>

#include "bridge/backend/random/random_region.h"

namespace spmdx::bridge {

// Fills a region on an accelerator with the numbers that the CPU draws. Null for a distribution that takes more than
// exact arithmetic, so that the numbers may differ.
using FillByTensors = std::function<at::Tensor(const Region& region, c10::ScalarType dtype, const ElementWords& draw,
                                               std::span<const Param> params)>;
FillByTensors prepare_by_tensors(const Call& call);

}  // namespace spmdx::bridge
