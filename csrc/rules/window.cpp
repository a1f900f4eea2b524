// SPDX-License-Identifier: Apache-2.0
// Windows: ops that read or write at indices, where each device does those that fall into its part of the dim.
#include <algorithm>

#include "rules/families.h"
#include "rules/row.h"
#include "rules/window.h"

namespace spmdx {
namespace {

bool everywhere(const std::vector<TensorFactors>& tensors, int factor) {
  return std::all_of(tensors.begin(), tensors.end(), [factor](const TensorFactors& dims) {
    return std::any_of(dims.begin(), dims.end(), [factor](const std::vector<int>& dim) {
      return std::find(dim.begin(), dim.end(), factor) != dim.end();
    });
  });
}

}  // namespace

Call windowed_call(const Call& call) {
  Call inner = call;
  inner.op = std::get<std::string>(argument(call, kWindowOp));
  inner.args.erase(inner.args.begin(), inner.args.begin() + kWindowArgs);
  return inner;
}

// What the op's own rule may cut only by an expansion is cut here: a window of what is written, or a sum over the
// windows of what is read.
OpRule window(const Call& call) {
  const Call inner = windowed_call(call);
  const Row& row = row_of(inner);
  OpRule rule = row.family(inner);
  for (size_t f = 0; f < rule.factors.size(); ++f) {
    Factor& factor = rule.factors[f];
    if (factor.kind != FactorKind::composite) continue;
    const bool written = everywhere(rule.outputs, static_cast<int>(f));
    factor = written ? Factor{factor.size} : Factor{factor.size, FactorKind::reduce, Reduction::sum};
  }
  if (row.linearity != Linearity::none) {
    rule.linearity = row.linearity;
    rule.linear_inputs = row.linear_inputs;
  }
  // Rows are added to nothing, see expand_window: the first operand is not read.
  if (adds_rows(inner)) rule.linear_inputs &= ~uint64_t{1};
  // What is read outside of the window is 0, which only sums pass over.
  if (rule.linearity == Linearity::movement) rule.linearity = Linearity::joint;
  return rule;
}

void window_start(const Call&, const std::vector<Box>& inputs, const std::vector<Box>&, std::vector<Arg>& args) {
  const auto dim = static_cast<size_t>(std::get<int64_t>(args.at(kWindowDim)));
  args.at(kWindowStart) = inputs.at(0).at(dim).start;
}

}  // namespace spmdx
