// SPDX-License-Identifier: Apache-2.0
// Schedules: in which order the stages of a mesh work on microbatches, as users said for their models.
#pragma once
#include <map>
#include <memory>
#include <string>

#include "bridge/tensor/annotation.h"

namespace spmdx::bridge {

// One for each text; null for none. Holds the recorder's lock.
std::shared_ptr<const std::string> schedule_named(const std::string& text);

// The one schedule of the annotations on the graph's mesh whose values ops read; empty: none says one. Throws
// ShardingError where there are two.
std::string one_schedule(const std::map<ValueId, Annotation>& said, const Graph& graph);

}  // namespace spmdx::bridge
