// SPDX-License-Identifier: Apache-2.0
// Annotations: the shardings that users write for tensors.
#pragma once
#include <memory>
#include <string>
#include "sharding/spec.h"

#include "graph/graph.h"

namespace spmdx::bridge {

// The annotation of one tensor. A whole tensor's belongs to its alias root, a view's to the view, so that in-place
// updates keep it.
struct Annotation {
  ShardingRef sharding = nullptr;
  SourceId source = 0;
  bool state = false;                                      // a parameter or other state, see Input::state
  std::shared_ptr<const PartitionSpec> written = nullptr;  // set if it says more than `sharding`
  // In which order the stages work on microbatches, of a tensor of a pipelined model; else null. Equal ones are one.
  std::shared_ptr<const std::string> schedule = nullptr;
  // It came out of a file, with data: beside a tensor that is annotated for another mesh it ends.
  bool loaded = false;
};

// Warns that annotations are gone, led by the user's line; Python's filters say how often. REQUIRES: three sentences,
// the first of which goes on after "the annotation ".
void warn_of_lost_annotation(const std::string& why);

}  // namespace spmdx::bridge
