// SPDX-License-Identifier: Apache-2.0
// Numbers of a call, and what no distribution accepts.
#include "bridge/backend/random/random_region.h"

#include <ATen/Dispatch.h>

#include "base/error.h"

namespace spmdx::bridge {

void require_that(bool holds, const std::string& what) {
  if (!holds) throw ShardingError(what);
}

Number number(const Call& call, size_t index) {
  internal_check(index < call.args.size(), call.op + " lacks an argument");
  const Arg& arg = call.args[index];
  if (const auto* value = std::get_if<int64_t>(&arg)) return {{.integer = *value}, -1, true};
  if (const auto* value = std::get_if<double>(&arg)) return {{.real = *value}, -1, false};
  if (const auto* value = std::get_if<bool>(&arg)) return {{.integer = *value}, -1, true};
  if (const auto* param = std::get_if<RealParam>(&arg)) return {{}, param->index, false};
  if (const auto* param = std::get_if<IntParam>(&arg)) return {{}, param->index, true};
  throw InternalError(call.op + " has an argument that is not a number");
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
