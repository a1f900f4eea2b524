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

// How many times larger or smaller sizes are, of all dims together, as a logarithm. REQUIRES: as many dims.
double distance(const std::vector<Shape>& a, const std::vector<Shape>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i)
    for (size_t d = 0; d < a[i].size(); ++d)
      sum += std::abs(std::log(static_cast<double>(a[i][d] + 1) / static_cast<double>(b[i][d] + 1)));
  return sum;
}

}  // namespace

PrecedentRef Precedents::find(const Graph& traced) {
  const uint64_t likeness = likeness_of(traced);
  const std::vector<Shape> inputs = shapes_of_inputs(traced);
  auto best = recent_.end();
  double nearest = 0;
  for (auto entry = recent_.begin(); entry != recent_.end(); ++entry) {
    if (entry->likeness != likeness) continue;
    const double far = distance(inputs, entry->inputs);
    if (best != recent_.end() && far >= nearest) continue;
    best = entry;
    nearest = far;
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
