// SPDX-License-Identifier: Apache-2.0
// Route: which process contributes what to the shards of a collective.
#pragma once
#include "runtime/collective/native.h"
#include "sharding/processes.h"

namespace spmdx {

struct Delivery {
  int64_t peer = 0;
  Contribution contribution;  // without summands where the target has partners: then
  size_t target = 0;          // the peer's part is sent, of what this process gives to its own target of this number
};

struct Route {
  int64_t here = 0;
  std::vector<Target> targets;       // of this process, by its shards of the new layout
  std::vector<Delivery> deliveries;  // in the order in which each peer looks for them
  std::vector<int64_t> sources;      // the old shards it holds, by distinct index, ascending
  std::vector<Native> natives;       // in the order in which they are called
  bool crosses = false;              // something is sent or received
};

// Parts of a sum of so few elements are cut out of it; those of a larger one are added up each by itself, so that no
// part keeps the memory of the others.
constexpr int64_t kMostCutSum = 4'096;

// A sum of more than two partners is shared out if it has at least so many elements.
constexpr int64_t kLeastSharedSum = 16'384;

Route make_route(const Processes& processes, const Relayout& relayout, NativeRules rules = {});

}  // namespace spmdx
