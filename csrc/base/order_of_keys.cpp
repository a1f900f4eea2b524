// SPDX-License-Identifier: Apache-2.0
// A radix sort of the first bits of keys, after which few random keys are out of order.
#include "base/order_of_keys.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

namespace spmdx {
namespace {

constexpr int kDigitBits = 11, kMostDigits = 3;
constexpr size_t kRadix = size_t{1} << kDigitBits;

using Places = std::array<size_t, kRadix>;

size_t digit(uint64_t word, int shift) { return (word >> shift) & (kRadix - 1); }

// By digit, where the words begin that have it.
std::vector<Places> places_of(std::span<const uint64_t> words, int digits) {
  std::vector<Places> places(static_cast<size_t>(digits), Places{});
  for (const uint64_t word : words)
    for (int i = 0; i < digits; ++i) ++places[static_cast<size_t>(i)][digit(word, 64 - (i + 1) * kDigitBits)];
  for (Places& of_digit : places) {
    size_t sum = 0;
    for (size_t& start : of_digit) sum += std::exchange(start, sum);
  }
  return places;
}

// Sorts words that agree in their first bits, which lie together, in the order of whole keys.
template <class Before>
void sort_runs(std::span<uint64_t> words, int first_bits, const Before& before) {
  const int rest = 64 - first_bits;
  for (auto run = words.begin(); run != words.end();) {
    const uint64_t first = *run >> rest;
    const auto end = std::find_if(run, words.end(), [=](uint64_t word) { return word >> rest != first; });
    if (end - run > 1) std::sort(run, end, before);
    run = end;
  }
}

}  // namespace

void order_by_keys(std::span<uint64_t> packed, std::span<uint64_t> order, int bits, const KeyOf& key_of) {
  const uint64_t index = (uint64_t{1} << bits) - 1;
  const auto before = [&](uint64_t a, uint64_t b) {
    if ((a ^ b) >> bits) return a < b;
    const uint64_t key_a = key_of(a & index), key_b = key_of(b & index);
    return key_a != key_b ? key_a < key_b : a < b;
  };
  const int digits = packed.size() < kRadix ? 0 : std::min(kMostDigits, (64 - bits) / kDigitBits);
  std::vector<Places> places = places_of(packed, digits);
  std::span<uint64_t> from = packed, to = order;
  for (int i = digits; i-- > 0;) {  // one stable pass a digit
    Places& place = places[static_cast<size_t>(i)];
    for (const uint64_t word : from) to[place[digit(word, 64 - (i + 1) * kDigitBits)]++] = word;
    std::swap(from, to);
  }
  if (digits == 0)
    std::sort(from.begin(), from.end(), before);
  else
    sort_runs(from, digits * kDigitBits, before);
  std::transform(from.begin(), from.end(), order.begin(), [=](uint64_t word) { return word & index; });
}

}  // namespace spmdx
