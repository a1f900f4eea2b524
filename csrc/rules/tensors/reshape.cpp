// SPDX-License-Identifier: Apache-2.0
// Reshape: walks both shapes from the left, and gives them a common factor wherever their remaining sizes have one.
#include <numeric>

#include "rules/build/letters.h"
#include "rules/rule/rule.h"
#include "rules/tensors/pointwise.h"

namespace spmdx::rules {
namespace {

// The walk over one shape, without its dims of size 1.
struct Side {
  std::vector<size_t> dims;
  std::vector<int64_t> sizes;
  TensorFactors factors;
  size_t next = 0;
  int64_t left = 1;  // the size of the current dim, divided by the factors it was given so far

  explicit Side(const Shape& shape) : factors(shape.size()) {
    for (size_t d = 0; d < shape.size(); ++d) {
      if (shape[d] == 1) continue;
      dims.push_back(d);
      sizes.push_back(shape[d]);
    }
  }
  bool load() {
    if (left == 1 && next < sizes.size()) left = sizes[next++];
    return left != 1;
  }
  void take(int factor, int64_t size) {
    factors[dims[next - 1]].push_back(factor);
    left /= size;
  }
};

int add_factor(OpRule& rule, int64_t size, FactorKind kind) {
  rule.factors.push_back({size, kind, Reduction::none});
  return static_cast<int>(rule.factors.size()) - 1;
}

void take_whole(OpRule& rule, Side& side) { side.take(add_factor(rule, side.left, FactorKind::replicate), side.left); }

// The remaining sizes have no common divisor: dims may not be cut until both sides have covered equally many elements.
void skip_unaligned(OpRule& rule, Side& a, Side& b) {
  int64_t covered_a = a.left, covered_b = b.left;
  take_whole(rule, a);
  take_whole(rule, b);
  while (covered_a != covered_b) {
    Side& behind = covered_a < covered_b ? a : b;
    if (!behind.load()) return;
    (covered_a < covered_b ? covered_a : covered_b) *= behind.left;
    take_whole(rule, behind);
  }
}

}  // namespace

OpRule view(const Call& call) {
  if (numel(call.inputs[0].shape) == 0) return replicated(call);
  OpRule rule;
  Side in(call.inputs[0].shape), out(call.outputs[0].shape);
  while (in.load() && out.load()) {
    const int64_t common = std::gcd(in.left, out.left);
    if (common == 1) {
      skip_unaligned(rule, in, out);
      continue;
    }
    const int factor = add_factor(rule, common, FactorKind::pass);
    in.take(factor, common);
    out.take(factor, common);
    // Example: 6 and 4 have the common factor 2; then 3 and 2 are left, which have none.
  }
  rule.inputs = {std::move(in.factors)};
  rule.outputs = {std::move(out.factors)};
  return rule;
}

// If the dtypes differ in size, elements of the last dim are joined or split.
OpRule view_dtype(const Call& call) {
  const bool same = itemsize(call.inputs.at(0).dtype) == itemsize(call.outputs.at(0).dtype);
  return from_letters(call, {{same ? "*" : "*A!"}, {same ? "*" : "*B!"}});
}

}  // namespace spmdx::rules
