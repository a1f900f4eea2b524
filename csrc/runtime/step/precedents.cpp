// SPDX-License-Identifier: Apache-2.0
// Precedents: a short list in order of use.
#include "runtime/step/precedents.h"

#include <algorithm>
#include <cmath>

namespace spmdx {
namespace {

std::vector<Shape> shapes_of_inputs(const Graph& graph) {
  std::vector<Shape> shapes;
  for (const Input& input : graph.inputs) shapes.push_back(graph.value(input.value).type.shape);
  return shapes;
}

// How many times larger or smaller inputs are, as a logarithm: the one that differs most, and all together. REQUIRES:
// as many of them, of as many dims.
struct Distance {
  double most = 0, sum = 0;
};
Distance distance(const std::vector<Shape>& a, const std::vector<Shape>& b) {
  Distance distance;
  for (size_t i = 0; i < a.size(); ++i) {
    const double one = static_cast<double>(numel(a[i]) + 1) / static_cast<double>(numel(b[i]) + 1);
    distance.most = std::max(distance.most, std::abs(std::log(one)));
    for (size_t d = 0; d < a[i].size(); ++d)
      distance.sum += std::abs(std::log(static_cast<double>(a[i][d] + 1) / static_cast<double>(b[i][d] + 1)));
  }
  return distance;
}

}  // namespace

PrecedentRef Precedents::find(const Graph& traced) {
  const uint64_t likeness = likeness_of(traced);
  const std::vector<Shape> inputs = shapes_of_inputs(traced);
  auto best = recent_.end();
  double nearest = 0;
  for (auto entry = recent_.begin(); entry != recent_.end(); ++entry) {
    if (entry->likeness != likeness) continue;
    const Distance far = distance(inputs, entry->inputs);
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
  recent_.push_front({likeness, shapes_of_inputs(traced), std::move(precedent)});
  size_t alike = 0;
  std::erase_if(recent_, [&](const Entry& entry) { return entry.likeness == likeness && ++alike > kOfOne; });
  if (recent_.size() > kMost) recent_.pop_back();
}

}  // namespace spmdx
