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

// Words of a propagation name layouts; those of an expansion, which have no end, do not.
void Trail::append(const Trail& other) {
  for (std::vector<uint32_t> words : other.stretches) {
    const bool propagation = !words.empty() && words.back() == kStable;
    for (size_t i = 0; propagation && i < words.size(); ++i) {
      if (words[i] == kTies || words[i] == kStable) continue;
      const size_t changes = words[i + 1];
      for (size_t c = 0; c < changes; ++c) {
        uint32_t& layout = words[i + 3 + 2 * c];
        layout = number_of(other.layouts[layout]);
      }
      i += 1 + 2 * changes;
    }
    stretches.push_back(std::move(words));
  }
}

std::optional<std::span<const uint32_t>> Walk::next() {
  if (!follows || at >= follows->stretches.size()) return std::nullopt;
  return follows->stretches[at++];
}

std::vector<uint32_t>* Walk::begin() { return leaves ? &leaves->stretches.emplace_back() : nullptr; }

}  // namespace spmdx
