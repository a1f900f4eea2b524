// SPDX-License-Identifier: Apache-2.0
// The order of random keys, which is a random permutation. A key and its index share one word, so that half as much
// memory is moved: of the key there remain as many of its first bits as the index leaves free.
#pragma once
#include <bit>
#include <cstdint>
#include <functional>
#include <span>

namespace spmdx {

// Bits that the indices of so many keys need.
inline int bits_of_indices(size_t count) { return count < 2 ? 0 : static_cast<int>(std::bit_width(count - 1)); }
// A key and its index in one word. REQUIRES: bits < 64.
inline uint64_t packed_key(uint64_t key, uint64_t index, int bits) { return (key >> bits << bits) | index; }

// Gives the whole key of an index again; asked for few.
using KeyOf = std::function<uint64_t(uint64_t index)>;

// Writes the indices to `order`, sorted by their keys. Indices of equal keys keep their order. `packed` is overwritten.
// Takes time in proportion to the length where keys are evenly distributed. REQUIRES: both spans have the length of
// which `bits` are bits_of_indices(), or more.
void order_by_keys(std::span<uint64_t> packed, std::span<uint64_t> order, int bits, const KeyOf& key_of);

}  // namespace spmdx
