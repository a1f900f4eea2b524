// SPDX-License-Identifier: Apache-2.0
// The logarithm and the sine by their series, without branches, so that the compiler can work on many elements at once.
#include "base/normal.h"

#include <cmath>
#include <numbers>

// The loops are compiled for several instruction sets, of which the loader takes the best that the machine has. The
// sanitizers do not run yet when it does. No clone may contract a * b + c: CMakeLists.txt says so.
#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define SPMDX_CLONES __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#define SPMDX_CLONES
#endif

namespace spmdx {
namespace {

// value = m * 2^e with m between sqrt(1/2) and sqrt(2), and log(m) = 2 atanh(s), where s = (m - 1) / (m + 1).
inline double series_of_log(double value) {
  constexpr auto kLeast = std::bit_cast<uint64_t>(std::numbers::sqrt2 / 2);
  constexpr uint64_t kBias = 1023, kFraction = (uint64_t{1} << 52) - 1;
  // log(2), whose first part times an exponent is exact.
  constexpr double kLog2High = 0x1.62e42feep-1, kLog2Low = 0x1.a39ef35793c76p-33;
  const uint64_t moved = std::bit_cast<uint64_t>(value) - kLeast + (kBias << 52);
  const double e = whole_number(moved >> 52) - double{kBias};
  const double m = std::bit_cast<double>((moved & kFraction) + kLeast);
  const double s = (m - 1) / (m + 1), square = s * s;
  double sum = 1.0 / 21;
  for (const double term : {1.0 / 19, 1.0 / 17, 1.0 / 15, 1.0 / 13, 1.0 / 11, 1.0 / 9, 1.0 / 7, 1.0 / 5, 1.0 / 3})
    sum = sum * square + term;
  return e * kLog2High + (e * kLog2Low + (2 * s + 2 * s * square * sum));
}

// The sine of an angle in turns, between -1/4 and 1/4.
inline double sine(double turns) {
  const double x = 2 * std::numbers::pi * turns, square = x * x;
  double sum = 1 / 51090942171709440000.0;  // 1 / 21!
  for (const double term : {-1 / 121645100408832000.0, 1 / 355687428096000.0, -1 / 1307674368000.0, 1 / 6227020800.0,
                            -1 / 39916800.0, 1 / 362880.0, -1 / 5040.0, 1 / 120.0, -1 / 6.0})
    sum = sum * square + term;
  return x + x * square * sum;
}

inline double radius(uint64_t word) { return std::sqrt(-2 * series_of_log(open_unit(word))); }
// cos(2 pi u) of a uniform u. The angle is folded into the range of sine() exactly.
inline double cosine_of_word(uint64_t word) { return sine(std::abs(unit_53(word) - 0.5) - 0.25); }
inline double sine_of_word(uint64_t word) {
  const double half = unit_53(word) - 0.5;
  return sine(std::copysign(0.25 - std::abs(std::abs(half) - 0.25), -half));
}

}  // namespace

double log_of(double value) { return series_of_log(value); }
double normal(const PhiloxWords& words) { return radius(words.first) * cosine_of_word(words.second); }
NormalPair normal_pair(const PhiloxWords& words) {
  const double length = radius(words.first);
  return {length * cosine_of_word(words.second), length * sine_of_word(words.second)};
}

SPMDX_CLONES void normal_fill(const uint64_t* first, const uint64_t* second, double mean, double deviation,
                              std::span<double> out) {
  double* to = out.data();
  const size_t count = out.size();
  for (size_t i = 0; i < count; ++i) to[i] = mean + deviation * (radius(first[i]) * cosine_of_word(second[i]));
}

SPMDX_CLONES void exponential_fill(const uint64_t* first, double rate, std::span<double> out) {
  double* to = out.data();
  const size_t count = out.size();
  for (size_t i = 0; i < count; ++i) to[i] = -series_of_log(open_unit(first[i])) / rate;
}

}  // namespace spmdx
