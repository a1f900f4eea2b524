// SPDX-License-Identifier: Apache-2.0
// Windows: each device does the indices that point into its part of the dim.
#include "rules/rows/windows.h"

#include <algorithm>

#include "base/error.h"
#include "graph/args.h"
#include "rules/build/op_builder.h"
#include "rules/rows/indexing.h"
#include "rules/rule/row.h"

namespace spmdx::rules {
namespace {

bool everywhere(const std::vector<TensorFactors>& tensors, int factor) {
  return std::all_of(tensors.begin(), tensors.end(), [factor](const TensorFactors& dims) {
    return std::any_of(dims.begin(), dims.end(), [factor](const std::vector<int>& dim) {
      return std::find(dim.begin(), dim.end(), factor) != dim.end();
    });
  });
}

struct Indexing {
  int operand = -1;
  size_t dim = 0;
};

// The indices of an indexing op, and the dim that they point into. index and index_put have a list with one entry per
// dim, of which the first one counts; all others have the dim as argument 1 and the index as argument 2.
Indexing indexing_of(const Call& call) {
  if (const auto* list = std::get_if<TensorListArg>(&argument(call, 1))) {
    for (size_t d = 0; d < list->inputs.size(); ++d)
      if (list->inputs[d] != kNone) return {static_cast<int>(list->inputs[d]), d};
  }
  const size_t rank = call.inputs.at(0).shape.size();
  return {operand(call, 2), static_cast<size_t>(normal_dim(integer(call, 1, 0), rank))};
}

bool is_zeros(const OpBuilder& maths, ValueId value) {
  const Node* made = maths.producer(value);
  return made && makes_zeros(*made->call);
}

}  // namespace

bool makes_zeros(const Call& call) { return call.op == "aten.full" && is_number(argument(call, 1), 0); }

bool is_sum(const Call& call) {
  return call.op == "aten.add.Tensor" && call.inputs.size() == 2 && is_number(argument(call, 2), 1);
}

Call windowed_call(const Call& call) {
  Call inner = call;
  inner.op = std::get<std::string>(argument(call, kWindowOp));
  inner.args.erase(inner.args.begin(), inner.args.begin() + kWindowArgs);
  return inner;
}

bool writes_in_place(const Call& inner) {
  const std::string_view base = base_name(inner.op);
  if (base == "aten.index_put" || base == "aten._index_put_impl") return !boolean(inner, 3, false) || adds_rows(inner);
  return adds_rows(inner) || base == "aten.index_copy" || base == "aten.index_fill" || base == "aten.index_reduce" ||
         base == "aten.scatter_reduce" || inner.op == "aten.scatter.src" || inner.op == "aten.scatter.value";
}

bool adds_in_window(const Call& call) { return call.op == "spmdx.window" && adds_rows(windowed_call(call)); }

MemoryUse memory_of_window(const Call& call) {
  return writes_in_place(windowed_call(call)) ? MemoryUse::in_place : MemoryUse::fresh;
}

// The rule of the indexing op, in which composite factors may be cut: a factor that the outputs have passes (a window
// of what is written); any other is reduced by a sum (each device reads 0 outside of its window).
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
  // An op that adds gets zeros as its first operand, see expand_window, or what the pass fuse-adds puts there, which
  // holds sums.
  if (adds_rows(inner)) rule.linear_inputs &= ~uint64_t{1};
  // What is read outside of the window is 0, which is the identity of sums alone.
  if (rule.linearity == Linearity::movement) rule.linearity = Linearity::joint;
  return rule;
}

void window_start(const Call&, const std::vector<Box>& inputs, const std::vector<Box>&, std::vector<Arg>& args) {
  const auto dim = static_cast<size_t>(std::get<int64_t>(args.at(kWindowDim)));
  args.at(kWindowStart) = inputs.at(0).at(dim).start;
}

// An op that adds is run on zeros, and its result added to the operand: so each device may do a part of the indices,
// and the partial results sum up.
Values expand_window(Builder& builder, const Node& node) {
  OpBuilder maths(builder, node);
  const Call& call = maths.call();
  const Indexing at = indexing_of(call);
  internal_check(at.operand >= 0, "no index in " + call.op);
  std::vector<Arg> args = {call.op, int64_t{at.operand}, static_cast<int64_t>(at.dim), int64_t{0},
                           call.inputs[0].shape.at(at.dim)};
  args.insert(args.end(), call.args.begin(), call.args.end());
  Values inputs = node.inputs;
  const bool adds = adds_rows(call), to_zeros = is_zeros(maths, inputs[0]);
  if (adds && !to_zeros) inputs[0] = maths.full(call.inputs[0].shape, int64_t{0}, call.inputs[0].dtype);
  const ValueId written = maths.emit("spmdx.window", std::move(args), std::move(inputs), {maths.output(0)},
                                     Scalar{{}, call.num_params, node.param});
  return {adds && !to_zeros ? maths.add(node.inputs[0], written) : written};
}

}  // namespace spmdx::rules
