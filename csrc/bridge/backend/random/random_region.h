// SPDX-License-Identifier: Apache-2.0
// What the kernels of random ops share: the box that is filled, and the words of its elements.
#pragma once
#include <ATen/Parallel.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "bridge/backend/random/distributions.h"
#include "runtime/data/backend.h"

namespace spmdx::bridge {

// The box that a device holds of a tensor of these `sizes`.
struct Region {
  std::vector<int64_t> sizes, starts, extents;

  int64_t elements() const { return std::accumulate(extents.begin(), extents.end(), int64_t{1}, std::multiplies<>()); }
  int64_t row() const { return extents.empty() ? 1 : extents.back(); }

  // The same elements in the same order, where dims that lie whole behind another dim are joined to it.
  Region in_long_rows() const;

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

// Elements of a region that are drawn at once, and their words.
struct Batch {
  static constexpr int64_t kMost = 512;  // all that is known of a batch stays in the first cache
  int64_t begin = 0, count = 0;          // which local elements
  std::array<uint64_t, kMost> elements;  // their global indices
  std::array<uint64_t, kMost> first, second;
  PhiloxWords words(int64_t i) const {
    const auto at = static_cast<size_t>(i);
    return {first[at], second[at]};
  }
};
// Fills all but `begin` and `count`, which say what is asked for.
void draw_batch(const Region& region, const ElementWords& draw, Batch& batch);

// Calls visit(batch) until every element of the region was in one, on several threads.
template <class Visit>
void visit_batches(const Region& region, const ElementWords& draw, const Visit& visit) {
  const Region rows = region.in_long_rows();
  at::parallel_for(0, region.elements(), 4096, [&](int64_t begin, int64_t end) {
    Batch batch;
    for (batch.begin = begin; batch.begin < end; batch.begin += batch.count) {
      batch.count = std::min(Batch::kMost, end - batch.begin);
      draw_batch(rows, draw, batch);
      visit(std::as_const(batch));
    }
  });
}

// out[i] = make(words of the element), for every element of the region.
template <class T, class Make>
void fill_region(T* out, const Region& region, const ElementWords& draw, const Make& make) {
  visit_batches(region, draw, [&](const Batch& batch) {
    for (int64_t i = 0; i < batch.count; ++i) out[batch.begin + i] = make(batch.words(i));
  });
}

// Throws ShardingError with the message `what` unless `holds`.
void require_that(bool holds, const std::string& what);
// Throw ShardingError unless low <= high, or 0 <= p <= 1.
void check_bounds(double low, double high);
void check_probability(double p);
// The greatest number of this floating dtype below `bound`.
double greatest_below(double bound, c10::ScalarType dtype);

}  // namespace spmdx::bridge
