// SPDX-License-Identifier: Apache-2.0
// Volumes and overlaps of boxes.
#include "sharding/box.h"

namespace spmdx {

int64_t volume(const Box& box) {
  int64_t elements = 1;
  for (const Range& range : box) elements *= range.extent;
  return elements;
}

Box whole_box(const Shape& shape) {
  Box box;
  for (const int64_t size : shape) box.push_back({0, size});
  return box;
}

int64_t overlap(const Box& a, const Box& b) {
  int64_t elements = 1;
  for (size_t i = 0; i < a.size(); ++i) elements *= overlap(a[i], b[i]).extent;
  return elements;
}

Range part_of(int64_t size, int64_t count, int64_t index) {
  const int64_t rows = ceil_div(size, count), start = std::min(index * rows, size);
  return {start, std::min(rows, size - start)};
}

}  // namespace spmdx
