// SPDX-License-Identifier: Apache-2.0
// Matrix products whose letters depend on shapes or arguments. Where a bias is added, the contracted dim is composite,
// because the bias must be added once, not on each device.
#include "rules/layers/linear.h"

#include <algorithm>

#include "graph/args.h"
#include "rules/build/fits.h"
#include "rules/build/letters.h"
#include "rules/build/op_builder.h"

namespace spmdx::rules {
namespace {

// (self, a, b): self broadcasts to the result, so it has the last letters of the result. Of integers the contracted dim
// is not cut, because beta and alpha are recorded as real numbers.
OpRule with_self(const Call& call, std::string a, const std::string& b, const std::string& out) {
  if (!is_floating(call.outputs[0].dtype)) std::replace(a.begin(), a.end(), '+', '!');
  const size_t rank = call.inputs[0].shape.size();
  return from_letters(call, {{out.substr(out.size() - std::min(rank, out.size())), a, b}, {out}});
}

// Letters of a scale: one with a number per row (or column) has the letter `free` in that dim; a number for the whole
// operand, or one per block, may not be cut.
std::string scale(const TensorType& type, size_t dim, int64_t size, char free, char whole) {
  if (type.shape.size() != 2 || size == 1 || type.shape[dim] != size) return dims(type.shape.size(), whole, '!');
  const std::string other{static_cast<char>(whole + 2), '!'};
  return dim == 0 ? free + other : other + free;
}

const char* product_of(std::string_view op) {
  const std::string_view base = base_name(op);
  if (base == "aten.baddbmm") return "aten.bmm";
  return base == "aten.addmv" ? "aten.mv" : "aten.mm";
}

ValueId scaled(OpBuilder& maths, ValueId value, const Scalar& by) {
  return is_number(by.value, 1) ? value : maths.mul(value, by);
}

}  // namespace

OpRule addmm(const Call& call) { return with_self(call, "mk+", "kn", "mn"); }

OpRule baddbmm(const Call& call) { return with_self(call, "bmk+", "bkn", "bmn"); }

OpRule addmv(const Call& call) { return with_self(call, "mk+", "k", "m"); }

OpRule addr(const Call& call) { return with_self(call, "m", "n", "mn"); }

// (a, b, c, expand_a, expand_b, expand_c, sum_dims, …): an operand lacks the dims that it expands, and the result lacks
// the dims that are summed over.
OpRule trilinear(const Call& call) {
  const size_t rank = call.inputs.at(0).shape.size() + integers(call, 3).size();
  const auto without = [rank](const std::vector<int64_t>& left_out) {
    std::string text = dims(rank);
    for (int64_t d : left_out) std::erase(text, static_cast<char>('a' + normal_dim(d, rank)));
    return text;
  };
  return from_letters(call, {{without(integers(call, 3)), without(integers(call, 4)), without(integers(call, 5))},
                             {without(integers(call, 6))}});
}

// (A, B) -> (result, LU, pivots, info). B has a matrix or a vector for each matrix of A.
OpRule linalg_solve(const Call& call) {
  const bool vectors = call.inputs.at(1).shape.size() + 1 == call.inputs.at(0).shape.size() &&
                       call.outputs.at(0).shape.size() + 1 == call.inputs[0].shape.size();
  return from_letters(call,
                      parse_letters(vectors ? "*A!B!,*C!->*D!,*E!F!,*G!,*" : "*A!B!,*C!D!->*E!F!,*G!H!,*I!,*", call));
}

// (a, b, scale_a, scale_b[, bias][, scale_result]): the result is rounded once, after the sum over k and the scaling,
// so k may not be cut.
OpRule scaled_mm(const Call& call) {
  for (const Arg& arg : call.args)
    if (const auto* list = std::get_if<TensorListArg>(&arg)) fits(list->inputs.size() == 1, "scales of several levels");
  const int64_t m = call.inputs.at(0).shape.at(0), n = call.inputs.at(1).shape.at(1);
  Letters letters{{"mk!", "k!n", scale(call.inputs.at(2), 0, m, 'm', 'A'), scale(call.inputs.at(3), 1, n, 'n', 'E')},
                  {"mn"}};
  for (size_t i = 4; i < call.inputs.size(); ++i)
    letters.inputs.push_back(call.inputs[i].shape == Shape{n} ? "n" : dims(call.inputs[i].shape.size(), 'S', '!'));
  return from_letters(call, letters);
}

// beta·self + alpha·(a @ b)
Values expand_addmm(Builder& builder, const Node& node) {
  OpBuilder maths(builder, node);
  const ValueId product = maths.emit(product_of(maths.call().op), {TensorArg{0}, TensorArg{1}},
                                     {maths.input(1), maths.input(2)}, {maths.output(0)});
  const ValueId right = scaled(maths, product, maths.scalar(4));
  const Scalar beta = maths.scalar(3);
  if (is_number(beta.value, 0)) return {right};
  return {maths.add(right, scaled(maths, maths.input(0), beta))};
}

}  // namespace spmdx::rules
