// SPDX-License-Identifier: Apache-2.0
// PlanCache: a list in order of use and an index by hash.
#include "runtime/step/plan_cache.h"

namespace spmdx {

PlanRef PlanCache::find(uint64_t hash, const Graph& graph) {
  const auto [begin, end] = by_hash_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    if (!same(it->second->plan->traced, graph)) continue;
    recent_.splice(recent_.begin(), recent_, it->second);
    return recent_.front().plan;
  }
  return nullptr;
}

void PlanCache::insert(uint64_t hash, PlanRef plan) {
  recent_.push_front({hash, std::move(plan)});
  by_hash_.emplace(hash, recent_.begin());
  if (recent_.size() <= kCapacity) return;
  const auto oldest = std::prev(recent_.end());
  const auto [begin, end] = by_hash_.equal_range(oldest->hash);
  for (auto it = begin; it != end; ++it)
    if (it->second == oldest) {
      by_hash_.erase(it);
      break;
    }
  recent_.erase(oldest);
}

void PlanCache::clear() {
  by_hash_.clear();
  recent_.clear();
}

}  // namespace spmdx
