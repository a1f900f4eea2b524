// SPDX-License-Identifier: Apache-2.0
// PlanCache: a list in order of use and an index by hash.
#include "runtime/step/plan_cache.h"

#include <algorithm>

#include "runtime/program/bytes.h"

namespace spmdx {
namespace {

constexpr int64_t kRunning = 2;     // a plan that has run holds about this many times what it was made of
constexpr size_t kInsertions = 32;  // between two counts of what all plans hold

}  // namespace

PlanRef PlanCache::find(uint64_t hash, const Graph& graph) {
  const auto [begin, end] = by_hash_.equal_range(hash);
  if (begin == end) return nullptr;
  const bool any_starts = !begin->second->plan->starts.values.empty();
  const std::vector<int64_t> starts = any_starts ? starts_of(graph) : std::vector<int64_t>();
  for (auto it = begin; it != end; ++it) {
    const Plan& plan = *it->second->plan;
    if (!plan.starts.fit(starts) || !same(plan.traced, graph)) continue;
    recent_.splice(recent_.begin(), recent_, it->second);
    return recent_.front().plan;
  }
  return nullptr;
}

// A plan that is used again and again is among the first.
bool PlanCache::touch(const PlanRef& plan) {
  const auto entry = std::find_if(recent_.begin(), recent_.end(), [&](const Entry& one) { return one.plan == plan; });
  if (entry == recent_.end()) return false;
  recent_.splice(recent_.begin(), recent_, entry);
  return true;
}

void PlanCache::insert(uint64_t hash, PlanRef plan, bool alike) {
  const auto num_starts = static_cast<int64_t>(plan->starts.values.size());
  const int64_t traced_bytes = bytes_of(plan->traced) + num_starts * static_cast<int64_t>(sizeof(int64_t));
  recent_.push_front({hash, std::move(plan), traced_bytes, 0});
  if (alike) recent_.front().all_bytes = kRunning * recent_.front().bytes();
  by_hash_.emplace(hash, recent_.begin());
  counted_bytes_ = bytes_when_inserted();
  while (recent_.size() > 1 && (recent_.size() > kCapacity || counted_bytes_ > kBytes)) drop(std::prev(recent_.end()));
}

// Plans that run hold more from then on; counting all of them takes longer than to make a small one, of which many are
// far from the limit.
int64_t PlanCache::bytes_when_inserted() {
  const bool counts = counted_bytes_ > kBytes / 2 || inserted_++ % kInsertions == 0;
  return counts ? bytes() : counted_bytes_ + recent_.front().bytes();
}

void PlanCache::drop(const PlanRef& plan) {
  drop(std::find_if(recent_.begin(), recent_.end(), [&](const Entry& entry) { return entry.plan == plan; }));
}

std::vector<PlanRef> PlanCache::all() const {
  std::vector<PlanRef> plans;
  for (const Entry& entry : recent_) plans.push_back(entry.plan);
  return plans;
}

int64_t PlanCache::bytes() const {
  int64_t held = 0;
  for (const Entry& entry : recent_) held += entry.bytes();
  return held;
}

void PlanCache::drop(std::list<Entry>::iterator entry) {
  const auto [begin, end] = by_hash_.equal_range(entry->hash);
  by_hash_.erase(std::find_if(begin, end, [&](const auto& known) { return known.second == entry; }));
  counted_bytes_ -= entry->bytes();
  recent_.erase(entry);
}

void PlanCache::clear() {
  by_hash_.clear();
  recent_.clear();
  counted_bytes_ = 0;
}

}  // namespace spmdx
