// SPDX-License-Identifier: Apache-2.0
// Trail: what propagation and expansion have found out, in order, so that a program of other sizes need not look again.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "sharding/sharding.h"

namespace spmdx {

using Cuts = std::vector<DimSharding>;  // of all dims of a value

struct Trail {
  // Among the words of a stretch: values that are tied adopt each other's layout; nothing changes any more.
  static constexpr uint32_t kTies = UINT32_MAX, kStable = UINT32_MAX - 1;

  std::vector<Cuts> layouts;  // each once
  // One for each propagation and each round of expansion. The former has for each change: the node, how many of its
  // tensors change, and of each the tensor and its new layout. The latter has the nodes that were expanded.
  std::vector<std::vector<uint32_t>> stretches;

  bool operator==(const Trail&) const = default;
  uint32_t number_of(const Cuts& cuts);
};

// A trail that is left, or one that is followed, or neither.
struct Walk {
  Trail* leaves = nullptr;
  const Trail* follows = nullptr;
  size_t at = 0;  // the next stretch of what it follows

  // The next stretch, if there is one to follow.
  std::optional<std::span<const uint32_t>> next();
  // A new one, to be filled; null: nobody asks for it.
  std::vector<uint32_t>* begin();
};

}  // namespace spmdx
