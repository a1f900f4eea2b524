// SPDX-License-Identifier: Apache-2.0
// The order of random keys, which is a random permutation.
#pragma once
#include <cstdint>
#include <vector>

namespace spmdx {

struct IndexedKey {
  uint64_t key = 0;
  int64_t index = 0;
};

// Sorts by key. Equal keys keep their order. Takes time in proportion to the length where keys are evenly distributed.
void sort_keys(std::vector<IndexedKey>& keys);

}  // namespace spmdx
