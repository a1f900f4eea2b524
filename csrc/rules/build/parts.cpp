// SPDX-License-Identifier: Apache-2.0
// Parts: the size of a loose factor is the number of parts.
#include "rules/build/parts.h"

#include "base/error.h"
#include "rules/build/letters.h"

namespace spmdx::rules {

int sole_factor(const TensorFactors& factors, size_t dim, const Call& call) {
  internal_check(factors.at(dim).size() == 1, "a dim of parts without a factor in " + call.op);
  return factors[dim][0];
}

OpRule parts_of_dim(const Call& call, size_t dim, int64_t parts) {
  std::string text = dims(call.inputs[0].shape.size());
  text.insert(dim + 1, "~");
  OpRule rule = from_letters(call, {{text}, {text}});
  rule.factors.at(static_cast<size_t>(sole_factor(rule.inputs[0], dim, call))) = {parts, FactorKind::pass,
                                                                                  Reduction::none, true};
  return rule;
}

}  // namespace spmdx::rules
