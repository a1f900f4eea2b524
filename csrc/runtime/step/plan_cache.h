// SPDX-License-Identifier: Apache-2.0
// PlanCache: the plans of the last graphs seen, of a bounded number and of bounded bytes, found by hash and confirmed
// by an exact comparison.
#pragma once
#include <list>
#include <unordered_map>

#include "runtime/step/plan.h"

namespace spmdx {

// Not thread-safe: the engine holds a lock around it.
class PlanCache {
 public:
  static constexpr size_t kCapacity = 1024;
  // Of all plans together, estimated: 256 MiB.
  static constexpr int64_t kBytes = 268'435'456;
  PlanRef find(uint64_t hash, const Graph& graph);  // null: not here, or not for the graph's starts
  bool touch(const PlanRef& plan);                  // whether it is here; it is used now
  // Drops those that were not used for longest, but never this one. `alike`: processes drop the same plans, so that
  // what their runs hold does not count.
  void insert(uint64_t hash, PlanRef plan, bool alike = false);
  void drop(const PlanRef& plan);  // REQUIRES: it is here
  void clear();
  std::vector<PlanRef> all() const;
  size_t size() const { return recent_.size(); }
  int64_t bytes() const;  // a plan that has run since holds more than before

 private:
  struct Entry {
    uint64_t hash = 0;
    PlanRef plan;
    int64_t traced_bytes = 0;
    int64_t all_bytes = 0;  // where it is not to change
    int64_t bytes() const {
      if (all_bytes) return all_bytes;
      return traced_bytes + (plan->executable ? plan->executable->bytes_held() : 0);
    }
  };
  void drop(std::list<Entry>::iterator entry);
  int64_t bytes_when_inserted();
  std::list<Entry> recent_;    // most recently used first
  int64_t counted_bytes_ = 0;  // of all of them, when they were last counted, and of those that came since
  size_t inserted_ = 0;
  std::unordered_multimap<uint64_t, std::list<Entry>::iterator> by_hash_;
};

}  // namespace spmdx
