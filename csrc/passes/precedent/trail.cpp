// SPDX-License-Identifier: Apache-2.0
// Trail: words, and a table of what they name.
#include "passes/precedent/trail.h"

#include <algorithm>

namespace spmdx {

uint32_t Trail::number_of(const Cuts& cuts) {
  const auto at = std::find(layouts.begin(), layouts.end(), cuts);
  const auto number = static_cast<uint32_t>(at - layouts.begin());
  if (at == layouts.end()) layouts.push_back(cuts);
  return number;
}

std::optional<std::span<const uint32_t>> Walk::next() {
  if (!follows || at >= follows->stretches.size()) return std::nullopt;
  return follows->stretches[at++];
}

std::vector<uint32_t>* Walk::begin() { return leaves ? &leaves->stretches.emplace_back() : nullptr; }

}  // namespace spmdx
