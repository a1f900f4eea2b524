// SPDX-License-Identifier: Apache-2.0
// Abstract tensors: results of steps that are planned and not run, with a type and a sharding but no elements.
#pragma once
#include "bridge/tensor/meta.h"
#include "bridge/tensor/tensor.h"

namespace spmdx::bridge {

// Whether steps are planned and not run (Recorder::begin_plan_only).
bool planning_only();
void set_planning_only(bool only);  // REQUIRES: the recorder's lock

// Data that steps are planned with, and that never gets elements.
DataRef abstract_data(const TensorType& type, ShardingRef sharding = nullptr);
// A tensor of this layout that holds such data.
at::Tensor make_abstract(const Meta& meta);

// Throws ShardingError, with the user's line first: values are wanted that were never computed.
[[noreturn]] void refuse_values();
// Calls refuse_values unless the values of `tensor` exist or a step may run to compute them.
void require_values(const LazyTensor& tensor);

}  // namespace spmdx::bridge
