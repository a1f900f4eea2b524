// SPDX-License-Identifier: Apache-2.0
// A radix sort of the first bits of keys, after which few random keys are out of order.
#include "base/order_of_keys.h"

#include <algorithm>
#include <array>
#include <utility>

namespace spmdx {
namespace {

constexpr int kDigitBits = 11, kDigits = 3;
constexpr size_t kRadix = size_t{1} << kDigitBits;

size_t digit(uint64_t key, int shift) { return (key >> shift) & (kRadix - 1); }

// One stable pass: `to` gets `from` in the order of the digit.
void scatter(const std::vector<IndexedKey>& from, std::vector<IndexedKey>& to, int shift) {
  std::array<size_t, kRadix> place = {};
  for (const IndexedKey& entry : from) ++place[digit(entry.key, shift)];
  size_t sum = 0;
  for (size_t& start : place) sum += std::exchange(start, sum);
  for (const IndexedKey& entry : from) to[place[digit(entry.key, shift)]++] = entry;
}

}  // namespace

void sort_keys(std::vector<IndexedKey>& keys) {
  const auto before = [](const IndexedKey& a, const IndexedKey& b) { return a.key < b.key; };
  if (keys.size() < kRadix) return std::stable_sort(keys.begin(), keys.end(), before);
  std::vector<IndexedKey> other(keys.size());
  for (int pass = kDigits; pass > 0; --pass) {
    scatter(keys, other, 64 - pass * kDigitBits);
    keys.swap(other);
  }
  // Keys that agree in all digits so far lie together, in their order.
  constexpr int kRest = 64 - kDigits * kDigitBits;
  for (auto run = keys.begin(); run != keys.end();) {
    const auto end =
        std::find_if(run, keys.end(), [&](const IndexedKey& e) { return e.key >> kRest != run->key >> kRest; });
    if (end - run > 1) std::stable_sort(run, end, before);
    run = end;
  }
}

}  // namespace spmdx
