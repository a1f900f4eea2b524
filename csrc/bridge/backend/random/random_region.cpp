// SPDX-License-Identifier: Apache-2.0
// Checks of the arguments of distributions, and the numbers next to a bound.
#include "bridge/backend/random/random_region.h"

#include <ATen/Dispatch.h>

#include "base/error.h"

namespace spmdx::bridge {

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
