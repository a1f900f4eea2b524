// SPDX-License-Identifier: Apache-2.0
// What the kernels of random ops share: the box that is filled, and the words of its elements.
#pragma once
#include <ATen/Parallel.h>
#include <c10/core/ScalarType.h>

#include <functional>
#include <numeric>
#include <span>
#include <vector>

#include "bridge/backend/random/distributions.h"
#include "runtime/data/backend.h"

namespace spmdx::bridge {

// The box that a device holds of a tensor of these `sizes`.
struct Region {
  std::vector<int64_t> sizes, starts, extents;

  int64_t elements() const { return std::accumulate(extents.begin(), extents.end(), int64_t{1}, std::multiplies<>()); }
  int64_t row() const { return extents.empty() ? 1 : extents.back(); }

  // Global row-major index of the first element of row `index`.
  int64_t row_start(int64_t index) const {
    int64_t global = extents.empty() ? 0 : starts.back(), stride = extents.empty() ? 1 : sizes.back();
    for (size_t d = extents.size(); d-- > 1;) {
      global += (starts[d - 1] + index % extents[d - 1]) * stride;
      index /= extents[d - 1];
      stride *= sizes[d - 1];
    }
    return global;
  }
};

// Gives the words of every element in one draw.
struct ElementWords {
  uint64_t seed = 0, draw = 0;
  PhiloxWords words(int64_t element) const { return philox_words(seed, draw, static_cast<uint64_t>(element)); }
};

// Calls visit(local index, global index) for every element of the region, on several threads.
template <class Visit>
void fill_elements(const Region& region, const Visit& visit) {
  const int64_t row = region.row();
  at::parallel_for(0, region.elements(), 4096, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end;) {
      const int64_t stop = std::min(end, (i / row + 1) * row);
      int64_t global = region.row_start(i / row) + i % row;
      for (; i < stop; ++i, ++global) visit(i, global);
    }
  });
}

// out[i] = make(words of the element), for every element of the region.
template <class T, class Make>
void fill_region(T* out, const Region& region, const ElementWords& draw, const Make& make) {
  fill_elements(region, [&](int64_t i, int64_t global) { out[i] = make(draw.words(global)); });
}

// Throws ShardingError with the message `what` unless `holds`.
void require_that(bool holds, const std::string& what);
// Throw ShardingError unless low <= high, or 0 <= p <= 1.
void check_bounds(double low, double high);
void check_probability(double p);
// The greatest number of this floating dtype below `bound`.
double greatest_below(double bound, c10::ScalarType dtype);

}  // namespace spmdx::bridge
