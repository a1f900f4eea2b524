// SPDX-License-Identifier: Apache-2.0
// Philox rounds on vectors of 2, 4 or 8 counters, each 32-bit word of a counter in a lane of 64 bits.
#include "base/philox_fill.h"

#include <cstring>

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define SPMDX_PHILOX_LANES
#endif

namespace spmdx {
namespace {

using Fill = size_t(uint64_t seed, uint64_t draw, std::span<const uint64_t> elements, uint64_t* first,
                    uint64_t* second);

#ifdef SPMDX_PHILOX_LANES

// Defines a Fill that stops before a last vector that is not full, and returns where it stopped. It is a macro because
// a function that is inlined keeps the instruction set that it was written for. PRODUCT multiplies the low halves of
// lanes.
#define SPMDX_DEFINE_FILL(NAME, INSTRUCTIONS, LANES, PRODUCT)                                                         \
  __attribute__((target(INSTRUCTIONS))) size_t NAME(uint64_t seed, uint64_t draw, std::span<const uint64_t> elements, \
                                                    uint64_t* first, uint64_t* second) {                              \
    using Vector __attribute__((vector_size(8 * LANES))) = uint64_t;                                                  \
    const Vector low = Vector{} + 0xFFFFFFFF, multiplier0 = Vector{} + 0xD2511F53,                                    \
                 multiplier1 = Vector{} + 0xCD9E8D57;                                                                 \
    size_t i = 0;                                                                                                     \
    for (; i + LANES <= elements.size(); i += LANES) {                                                                \
      Vector element;                                                                                                 \
      std::memcpy(&element, elements.data() + i, sizeof element);                                                     \
      Vector c0 = element & low, c1 = element >> 32, c2 = Vector{} + (draw & 0xFFFFFFFF),                             \
             c3 = Vector{} + (draw >> 32);                                                                            \
      auto key0 = static_cast<uint32_t>(seed), key1 = static_cast<uint32_t>(seed >> 32);                              \
      for (int round = 0; round < 10; ++round) {                                                                      \
        const Vector product0 = PRODUCT(multiplier0, c0), product1 = PRODUCT(multiplier1, c2);                        \
        c0 = (product1 >> 32) ^ c1 ^ uint64_t{key0};                                                                  \
        c1 = product1 & low;                                                                                          \
        c2 = (product0 >> 32) ^ c3 ^ uint64_t{key1};                                                                  \
        c3 = product0 & low;                                                                                          \
        key0 += 0x9E3779B9;                                                                                           \
        key1 += 0xBB67AE85;                                                                                           \
      }                                                                                                               \
      const Vector words0 = c0 | (c1 << 32), words1 = c2 | (c3 << 32);                                                \
      std::memcpy(first + i, &words0, sizeof words0);                                                                 \
      std::memcpy(second + i, &words1, sizeof words1);                                                                \
    }                                                                                                                 \
    return i;                                                                                                         \
  }

#define SPMDX_PRODUCT_2(a, b) \
  reinterpret_cast<Vector>(_mm_mul_epu32(reinterpret_cast<__m128i>(a), reinterpret_cast<__m128i>(b)))
#define SPMDX_PRODUCT_4(a, b) \
  reinterpret_cast<Vector>(_mm256_mul_epu32(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)))
#define SPMDX_PRODUCT_8(a, b) \
  reinterpret_cast<Vector>(_mm512_maskz_mul_epu32(0xFF, reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)))
SPMDX_DEFINE_FILL(fill_by_2, "sse2", 2, SPMDX_PRODUCT_2)
SPMDX_DEFINE_FILL(fill_by_4, "avx2", 4, SPMDX_PRODUCT_4)
SPMDX_DEFINE_FILL(fill_by_8, "avx512f", 8, SPMDX_PRODUCT_8)

Fill& widest() {
  if (__builtin_cpu_supports("avx512f")) return fill_by_8;
  return __builtin_cpu_supports("avx2") ? fill_by_4 : fill_by_2;
}

#else

size_t fill_none(uint64_t, uint64_t, std::span<const uint64_t>, uint64_t*, uint64_t*) { return 0; }
Fill& widest() { return fill_none; }

#endif

}  // namespace

void philox_fill(uint64_t seed, uint64_t draw, std::span<const uint64_t> elements, uint64_t* first, uint64_t* second) {
  static Fill& fill = widest();
  for (size_t i = fill(seed, draw, elements, first, second); i < elements.size(); ++i) {
    const PhiloxWords words = philox_words(seed, draw, elements[i]);
    first[i] = words.first;
    second[i] = words.second;
  }
}

}  // namespace spmdx
