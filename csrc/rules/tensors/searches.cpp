// SPDX-License-Identifier: Apache-2.0
// Searches: dims of the table may not be cut; dims of the elements pass.
#include "graph/args.h"
#include "rules/build/letters.h"
#include "rules/rule/rule.h"
#include "rules/tensors/pointwise.h"

namespace spmdx::rules {
namespace {

std::string whole(const Call& call, size_t input) { return dims(call.inputs.at(input).shape.size(), 'A', '!'); }

}  // namespace

// take(x, index): an index counts through the flattened x.
OpRule take(const Call& call) { return from_letters(call, {{whole(call, 0), "*"}, {"*"}}); }

// isin(elements, tests): one of the two may be a number.
OpRule isin(const Call& call) {
  if (operand(call, 1) < 0) return pointwise(call);
  if (operand(call, 0) < 0) return replicated(call);
  return from_letters(call, {{"*", whole(call, 1)}, {"*"}});
}

// searchsorted(sorted, values, …, sorter): `sorted` has one row for each row of values, or is a single row.
OpRule searchsorted(const Call& call) {
  if (operand(call, 1) < 0) return replicated(call);
  const bool rows = call.inputs[0].shape.size() > 1;
  Letters letters{{rows ? "*S!" : "S!", rows ? "*v" : "*"}, {rows ? "*v" : "*"}};
  if (call.inputs.size() > 2) letters.inputs.push_back(rows ? "*T!" : "T!");
  return from_letters(call, letters);
}

}  // namespace spmdx::rules
