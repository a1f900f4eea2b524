// SPDX-License-Identifier: Apache-2.0
// Random numbers of many elements at once are those of one element, to the bit.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "base/normal.h"
#include "base/order_of_keys.h"
#include "base/philox_fill.h"
#include "check.h"

namespace spmdx {
namespace {

struct Words {
  std::vector<uint64_t> first, second;
};

Words words_of(size_t count, uint64_t start) {
  std::vector<uint64_t> elements(count);
  std::iota(elements.begin(), elements.end(), start);
  Words words{std::vector<uint64_t>(count), std::vector<uint64_t>(count)};
  philox_fill(0x123456789ABCDEF0, 0xFEDCBA9876543210, elements, words.first.data(), words.second.data());
  return words;
}

TEST(words_of_many_elements_are_those_of_each) {
  for (const uint64_t start : {uint64_t{0}, uint64_t{0xFFFFFFF0}, ~uint64_t{60}})
    for (size_t count = 0; count < 40; ++count) {
      const Words words = words_of(count, start);
      for (size_t i = 0; i < count; ++i) {
        const PhiloxWords one = philox_words(0x123456789ABCDEF0, 0xFEDCBA9876543210, start + i);
        CHECK(words.first[i] == one.first && words.second[i] == one.second);
      }
    }
}

TEST(numbers_of_many_words_are_those_of_each) {
  for (const size_t count : {0, 1, 2, 3, 5, 7, 8, 9, 15, 17, 1000}) {
    const Words words = words_of(count, 5);
    std::vector<double> normals(count), waits(count);
    normal_fill(words.first.data(), words.second.data(), 0.5, 3, normals);
    exponential_fill(words.first.data(), 0.7, waits);
    for (size_t i = 0; i < count; ++i) {
      CHECK(normals[i] == 0.5 + 3 * normal({words.first[i], words.second[i]}));
      CHECK(waits[i] == -log_of(open_unit(words.first[i])) / 0.7);
    }
  }
}

TEST(numbers_have_the_same_bits_on_every_machine) {
  // The first numbers of seed 0, draw 0: exact operations leave no choice of them.
  const NormalPair pair = normal_pair(philox_words(0, 0, 0));
  CHECK_EQ(std::bit_cast<uint64_t>(pair.first), uint64_t{0xBFD973628C131C08});
  CHECK_EQ(std::bit_cast<uint64_t>(pair.second), uint64_t{0xBFD3DD84FF91E70D});
  CHECK_EQ(std::bit_cast<uint64_t>(log_of(open_unit(philox_words(0, 0, 1).first))), uint64_t{0xBFF040F5C8C1A4F5});
}

TEST(numbers_are_those_of_the_distribution) {
  const Words words = words_of(100'000, 0);
  for (size_t i = 0; i < words.first.size(); ++i) {
    const double unit = open_unit(words.first[i]), exact = std::log(unit);
    CHECK(std::abs(log_of(unit) - exact) <= 4e-16 * std::abs(exact));
    const double radius = std::sqrt(-2 * exact), angle = 2 * std::numbers::pi * unit_53(words.second[i]);
    const NormalPair pair = normal_pair({words.first[i], words.second[i]});
    CHECK(std::abs(pair.first - radius * std::cos(angle)) < 5e-15);
    CHECK(std::abs(pair.second - radius * std::sin(angle)) < 5e-15);
  }
}

TEST(logarithms_at_the_ends_of_the_range) {
  CHECK_EQ(log_of(open_unit(~uint64_t{0})), -0x1p-53);
  CHECK(std::abs(log_of(open_unit(0)) + 53 * std::numbers::ln2) < 1e-14);
  CHECK_EQ(log_of(1), 0.0);
  CHECK_EQ(normal({~uint64_t{0}, uint64_t{1} << 62}), 0.0);  // a quarter of a turn
}

void check_order(const std::vector<uint64_t>& keys, int bits) {
  std::vector<uint64_t> sorted(keys.size()), packed(keys.size()), order(keys.size());
  std::iota(sorted.begin(), sorted.end(), 0);
  std::stable_sort(sorted.begin(), sorted.end(), [&](uint64_t a, uint64_t b) { return keys[a] < keys[b]; });
  for (size_t i = 0; i < keys.size(); ++i) packed[i] = packed_key(keys[i], i, bits);
  order_by_keys(packed, order, bits, [&](uint64_t index) { return keys[index]; });
  CHECK(order == sorted);
}

TEST(keys_are_sorted_and_equal_ones_keep_their_order) {
  for (const size_t count : {0, 1, 2, 100, 2047, 2048, 2049, 30'000}) {
    const Words words = words_of(count, 0);
    // All 64 bits; few values, that are equal often; values that differ in the last bits or in the middle ones only.
    for (const uint64_t mask : {~uint64_t{0}, uint64_t{7} << 61, uint64_t{0xFFF}, uint64_t{0xF} << 29}) {
      std::vector<uint64_t> keys(count);
      for (size_t i = 0; i < count; ++i) keys[i] = words.first[i] & mask;
      // Bits of so many indices; of more, which leave room for three digits of keys, for two, and for none.
      for (const int bits : {bits_of_indices(count), 31, 32, 40, 60}) check_order(keys, bits);
    }
  }
}

}  // namespace
}  // namespace spmdx
