// SPDX-License-Identifier: Apache-2.0
// Normal and exponential numbers from random words, by sums, products, quotients and square roots in double precision
// only. IEEE 754 says how each of these rounds: so one element or many at once, every machine gets the same bits.
#pragma once
#include <bit>
#include <cstdint>
#include <span>

#include "base/philox.h"

namespace spmdx {

// A whole number below 2^52 as a double. Vector instructions have no conversion of 64-bit integers on every machine.
inline double whole_number(uint64_t value) { return std::bit_cast<double>(value | 0x4330000000000000u) - 0x1p52; }
// Uniform in [0, 1), in multiples of 2^-53.
inline double unit_53(uint64_t word) {
  return (whole_number(word >> 32) * 0x1p21 + whole_number((word >> 11) & 0x1FFFFF)) * 0x1p-53;
}
// Uniform in (0, 1) and symmetric about 1/2. Never 0, so that its logarithm is finite.
inline double open_unit(uint64_t word) { return (whole_number(word >> 12) + 0.5) * 0x1p-52; }

// The natural logarithm of a positive normal double, to two units in the last place.
double log_of(double value);
// Box-Muller: two words give two standard normal numbers; normal() is the first of them.
double normal(const PhiloxWords& words);
struct NormalPair {
  double first = 0, second = 0;
};
NormalPair normal_pair(const PhiloxWords& words);

// out[i] = mean + deviation * normal(first[i], second[i]), and out[i] = -log_of(open_unit(first[i])) / rate.
// The arrays are as long as `out`.
void normal_fill(const uint64_t* first, const uint64_t* second, double mean, double deviation, std::span<double> out);
void exponential_fill(const uint64_t* first, double rate, std::span<double> out);

}  // namespace spmdx
