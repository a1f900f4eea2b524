// SPDX-License-Identifier: Apache-2.0
// Boxes: ranges of the elements of a value, one range a dim.
#pragma once
#include <algorithm>
#include <vector>

#include "base/types.h"

namespace spmdx {

// Half-open range of one dim, or a box of them.
struct Range {
  int64_t start = 0;
  int64_t extent = 0;
  bool operator==(const Range&) const = default;

  int64_t stop() const { return start + extent; }
  bool holds(int64_t element) const { return element >= start && element < stop(); }
};
using Box = std::vector<Range>;

int64_t volume(const Box& box);
Box whole_box(const Shape& shape);

// The elements in both ranges; extent 0 where there are none.
inline Range overlap(const Range& a, const Range& b) {
  const int64_t start = std::max(a.start, b.start);
  return {start, std::max<int64_t>(0, std::min(a.stop(), b.stop()) - start)};
}
// Elements that both boxes hold.
int64_t overlap(const Box& a, const Box& b);

// Quotients, rounded towards negative and towards positive infinity. REQUIRES: b > 0.
inline int64_t floor_div(int64_t a, int64_t b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }
inline int64_t ceil_div(int64_t a, int64_t b) { return a > 0 ? (a + b - 1) / b : -(-a / b); }

// Part `index` of `count` of a dim, as torch.chunk cuts it.
Range part_of(int64_t size, int64_t count, int64_t index);

}  // namespace spmdx
