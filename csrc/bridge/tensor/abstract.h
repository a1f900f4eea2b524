// SPDX-License-Identifier: Apache-2.0
// Abstract values: of steps that are planned and not run, types with a sharding and no data.
#pragma once
#include "bridge/tensor/meta.h"
#include "bridge/tensor/tensor.h"

namespace spmdx::bridge {

// Whether steps are planned and not run (Recorder::begin_plan_only).
bool planning_only();
void set_planning_only(bool only);  // REQUIRES: the recorder's lock

// A value that is planned with and never computed.
DataRef abstract_data(const TensorType& type, ShardingRef sharding = nullptr);
// A tensor that holds it.
at::Tensor make_abstract(const Meta& meta);

// Throws ShardingError, led by the user's line: values are wanted that were never computed.
[[noreturn]] void refuse_values();
// Refuses unless the values of `tensor` exist or a step may run to compute them.
void require_values(const LazyTensor& tensor);

}  // namespace spmdx::bridge
