// SPDX-License-Identifier: Apache-2.0
// Reshape: walk both shapes from the left, with common factors wherever their products agree.
#include "rules/tensors/reshape.h"

#include <numeric>

#include "rules/build/letters.h"
#include "rules/tensors/pointwise.h"

namespace spmdx::rules {
namespace {

// One side of the walk: its dims without those of size 1.
struct Side {
  std::vector<size_t> dims;
  std::vector<int64_t> sizes;
  TensorFactors factors;
  size_t next = 0;
  int64_t left = 1;  // what the current dim has left

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

// Neither rest divides the other: what follows is not cut until both sides have covered equally many elements.
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
    // 6·… against 4·…: after the common 2, 3 and 2 are left. A rest of 1 on either side is aligned.
  }
  rule.inputs = {std::move(in.factors)};
  rule.outputs = {std::move(out.factors)};
  return rule;
}

// The same bits: where items are of another size, those of the last dim belong together.
OpRule view_dtype(const Call& call) {
  const bool same = itemsize(call.inputs.at(0).dtype) == itemsize(call.outputs.at(0).dtype);
  return from_letters(call, {{same ? "*" : "*A!"}, {same ? "*" : "*B!"}});
}

}  // namespace spmdx::rules
