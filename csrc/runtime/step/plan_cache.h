// SPDX-License-Identifier: Apache-2.0
// PlanCache: the plans of the last graphs seen, found by hash and confirmed by an exact comparison.
#pragma once
#include <list>
#include <unordered_map>

#include "runtime/step/plan.h"

namespace spmdx {

// Not thread-safe: the engine holds a lock around it.
class PlanCache {
 public:
  static constexpr size_t kCapacity = 256;
  PlanRef find(uint64_t hash, const Graph& graph);  // null: not here
  void insert(uint64_t hash, PlanRef plan);         // drops the one that was not used for longest
  void clear();
  size_t size() const { return recent_.size(); }

 private:
  struct Entry {
    uint64_t hash = 0;
    PlanRef plan;
  };
  std::list<Entry> recent_;  // most recently used first
  std::unordered_multimap<uint64_t, std::list<Entry>::iterator> by_hash_;
};

}  // namespace spmdx
