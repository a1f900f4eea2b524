// SPDX-License-Identifier: Apache-2.0
// Precedents: a short list in order of use.
#include "runtime/step/precedents.h"

#include <algorithm>
#include <cmath>

namespace spmdx {
namespace {

// Of all dims of all values: some are made from no input.
std::vector<float> sizes_of(const Graph& graph) {
  std::vector<float> sizes;
  for (const Value& value : graph.values)
    for (const int64_t size : value.type.shape) sizes.push_back(std::log(static_cast<float>(size + 1)));
  return sizes;
}

// The dim that differs most, and all together.
struct Distance {
  double most = 0, sum = 0;
};
Distance distance(const std::vector<float>& a, const std::vector<float>& b) {
  Distance distance;
  for (size_t i = 0; i < a.size(); ++i) {
    const double one = std::abs(a[i] - b[i]);
    distance.most = std::max(distance.most, one);
    distance.sum += one;
  }
  return distance;
}

}  // namespace

PrecedentRef Precedents::find(const Graph& traced) {
  const uint64_t likeness = likeness_of(traced);
  const std::vector<float> sizes = sizes_of(traced);
  auto best = recent_.end();
  double nearest = 0;
  for (auto entry = recent_.begin(); entry != recent_.end(); ++entry) {
    if (entry->likeness != likeness || entry->sizes.size() != sizes.size()) continue;
    const Distance far = distance(sizes, entry->sizes);
    if (far.most > std::log(kFar) || (best != recent_.end() && far.sum >= nearest)) continue;
    best = entry;
    nearest = far.sum;
  }
  if (best == recent_.end()) return nullptr;
  recent_.splice(recent_.begin(), recent_, best);
  return best->precedent;
}

void Precedents::insert(const Graph& traced, PrecedentRef precedent) {
  const uint64_t likeness = likeness_of(traced);
  recent_.push_front({likeness, sizes_of(traced), std::move(precedent)});
  size_t alike = 0;
  std::erase_if(recent_, [&](const Entry& entry) { return entry.likeness == likeness && ++alike > kOfOne; });
  if (recent_.size() > kMost) recent_.pop_back();
}

}  // namespace spmdx
