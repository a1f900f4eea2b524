// SPDX-License-Identifier: Apache-2.0
// Philox 4x32-10: a counter-based random generator, so a number depends only on seed, draw and index of its element.
#pragma once
#include <array>
#include <cstdint>

namespace spmdx {

using PhiloxBlock = std::array<uint32_t, 4>;

// The 128 random bits of one counter, after ten rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
// SC 2011).
inline PhiloxBlock philox(PhiloxBlock counter, uint32_t key0, uint32_t key1) {
  constexpr uint64_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = kMultiplier0 * counter[0];
    const uint64_t product1 = kMultiplier1 * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key0, static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key1, static_cast<uint32_t>(product0)};
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return counter;
}

// The random bits of one element of one draw. A draw is one random op of the program, `element` its global index.
struct PhiloxWords {
  uint64_t first = 0, second = 0;
};

inline PhiloxWords philox_words(uint64_t seed, uint64_t draw, uint64_t element) {
  const PhiloxBlock block = philox({static_cast<uint32_t>(element), static_cast<uint32_t>(element >> 32),
                                    static_cast<uint32_t>(draw), static_cast<uint32_t>(draw >> 32)},
                                   static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
  return {block[0] | (uint64_t{block[1]} << 32), block[2] | (uint64_t{block[3]} << 32)};
}

}  // namespace spmdx
