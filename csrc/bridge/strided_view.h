// SPDX-License-Identifier: Apache-2.0
// A view of any elements of a tensor's storage.
#pragma once
#include "bridge/tensor.h"

namespace spmdx::bridge {

// What lies in the storage of `source` at these sizes, strides and offset, seen as this dtype. Throws as eager does
// where that is beyond the storage.
at::Tensor strided_view(const LazyTensor& source, const Meta& meta);
// The steps of such a view.
std::vector<ViewStep> steps_to(const Root& root, const Meta& meta);

}  // namespace spmdx::bridge
