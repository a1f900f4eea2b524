// SPDX-License-Identifier: Apache-2.0
// Random numbers from words of Philox: an element's number depends on the seed, the draw and its own index only.
#pragma once
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>

#include "base/philox.h"

namespace spmdx::bridge {

// In [0, 1): every multiple of 2^-24, of 2^-53.
inline float unit_24(uint64_t word) { return static_cast<float>(word >> 40) * 0x1p-24f; }
inline double unit_53(uint64_t word) { return static_cast<double>(word >> 11) * 0x1p-53; }
// In (0, 1), symmetric: never 0, so that it has a logarithm.
inline double open_unit(uint64_t word) { return (static_cast<double>(word >> 12) + 0.5) * 0x1p-52; }

// Box-Muller: one of the two standard normal numbers that two words give, or both.
struct NormalPair {
  double first = 0, second = 0;
};
inline double normal_radius(const PhiloxWords& words) { return std::sqrt(-2 * std::log(open_unit(words.first))); }
inline double normal_angle(const PhiloxWords& words) { return 2 * std::numbers::pi * unit_53(words.second); }
inline double normal(const PhiloxWords& words) { return normal_radius(words) * std::cos(normal_angle(words)); }
inline NormalPair normal_pair(const PhiloxWords& words) {
  return {normal(words), normal_radius(words) * std::sin(normal_angle(words))};
}

// Of standard exponential distribution.
inline double exponential(uint64_t word) { return -std::log(open_unit(word)); }

// In [low, low + range); range 0 stands for 2^64.
inline int64_t bounded(uint64_t word, int64_t low, uint64_t range) {
  if (range == 0) return static_cast<int64_t>(word);
  const auto offset = static_cast<uint64_t>(static_cast<unsigned __int128>(word) * range >> 64);
  return static_cast<int64_t>(static_cast<uint64_t>(low) + offset);
}

// The greatest number of T below `bound`, for rounding that reached it.
template <class T>
T greatest_below(double bound) {
  T value = static_cast<T>(bound);
  if constexpr (sizeof(T) >= 4) {
    while (static_cast<double>(value) >= bound) value = std::nextafter(value, std::numeric_limits<T>::lowest());
  } else {
    // Bits of a 16-bit float, in order of magnitude.
    while (static_cast<double>(value) >= bound) {
      if (value.x == 0)
        value.x = 0x8001;
      else
        value.x = static_cast<uint16_t>(value.x & 0x8000 ? value.x + 1 : value.x - 1);
    }
  }
  return value;
}

}  // namespace spmdx::bridge
