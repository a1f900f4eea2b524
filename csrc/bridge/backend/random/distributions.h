// SPDX-License-Identifier: Apache-2.0
// Random numbers from words of Philox: an element's number depends on the seed, the draw and its own index only.
#pragma once
#include <cmath>
#include <cstdint>
#include <limits>

#include "base/normal.h"

namespace spmdx::bridge {

// Uniform in [0, 1), in multiples of 2^-24. Vector instructions convert signed integers of 32 bits on every machine.
inline float unit_24(uint64_t word) { return static_cast<float>(static_cast<int32_t>(word >> 40)) * 0x1p-24f; }

// Exponentially distributed, of rate 1.
inline double exponential(uint64_t word) { return -log_of(open_unit(word)); }

// An integer in [low, low + range); range 0 stands for 2^64.
inline int64_t bounded(uint64_t word, int64_t low, uint64_t range) {
  if (range == 0) return static_cast<int64_t>(word);
  const auto offset = static_cast<uint64_t>(static_cast<unsigned __int128>(word) * range >> 64);
  return static_cast<int64_t>(static_cast<uint64_t>(low) + offset);
}

// The greatest number of type T below `bound`. It replaces a number that rounding has brought up to `bound`.
template <class T>
T greatest_below(double bound) {
  T value = static_cast<T>(bound);
  if constexpr (sizeof(T) >= 4) {
    while (static_cast<double>(value) >= bound) value = std::nextafter(value, std::numeric_limits<T>::lowest());
  } else {
    // The bits of a 16-bit float, without the sign, are in the order of its magnitude.
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
