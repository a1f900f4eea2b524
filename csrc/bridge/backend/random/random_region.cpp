// SPDX-License-Identifier: Apache-2.0
// The words of a batch of elements; checks of the arguments of distributions, and the numbers next to a bound.
#include "bridge/backend/random/random_region.h"

#include <ATen/Dispatch.h>

#include "base/error.h"
#include "base/philox_fill.h"

namespace spmdx::bridge {

Region Region::in_long_rows() const {
  Region joined;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (joined.sizes.empty() || extents[d] != sizes[d]) {
      joined.sizes.push_back(sizes[d]);
      joined.starts.push_back(starts[d]);
      joined.extents.push_back(extents[d]);
      continue;
    }
    joined.sizes.back() *= sizes[d];
    joined.starts.back() *= sizes[d];
    joined.extents.back() *= sizes[d];
  }
  return joined;
}

void draw_batch(const Region& region, const ElementWords& draw, Batch& batch) {
  const int64_t row = region.row();
  for (int64_t done = 0; done < batch.count;) {
    const int64_t local = batch.begin + done, length = std::min(batch.count - done, row - local % row);
    const auto to = batch.elements.begin() + done;
    std::iota(to, to + length, static_cast<uint64_t>(region.row_start(local / row) + local % row));
    done += length;
  }
  philox_fill(draw.seed, draw.draw, std::span(batch.elements).first(static_cast<size_t>(batch.count)),
              batch.first.data(), batch.second.data());
}

void require_that(bool holds, const std::string& what) {
  if (!holds) throw ShardingError(what);
}

void check_bounds(double low, double high) {
  require_that(low <= high, "uniform got low " + std::to_string(low) + " and high " + std::to_string(high) +
                                ". Expected low <= high. Swap them.");
}

void check_probability(double p) {
  require_that(p >= 0 && p <= 1,
               "bernoulli got the probability " + std::to_string(p) + ". Expected 0 <= p <= 1. Clamp it first.");
}

double greatest_below(double bound, c10::ScalarType dtype) {
  return AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, dtype, "greatest_below",
                                         [&] { return static_cast<double>(bridge::greatest_below<scalar_t>(bound)); });
}

}  // namespace spmdx::bridge
