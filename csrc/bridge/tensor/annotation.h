// SPDX-License-Identifier: Apache-2.0
// Annotations: what the user writes for a tensor.
#pragma once
#include <memory>
#include <string>
#include "sharding/spec.h"

#include "graph/graph.h"

namespace spmdx::bridge {

// What was said of a tensor. That of a whole belongs to its root, that of a view to the view: in-place updates
// keep it.
struct Annotation {
  ShardingRef sharding = nullptr;
  SourceId source = 0;
  bool state = false;                                      // a parameter or other state, see Input::state
  std::shared_ptr<const PartitionSpec> written = nullptr;  // where it says more than the sharding
};

// Warns that annotations are gone, led by the user's line; Python's filters say how often. REQUIRES: three sentences,
// the first of which goes on after "the annotation ".
void warn_of_lost_annotation(const std::string& why);

}  // namespace spmdx::bridge
