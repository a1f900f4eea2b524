// SPDX-License-Identifier: Apache-2.0
// Searches: the table is whole, elements pass.
#include "rules/tensors/searches.h"

#include "graph/args.h"
#include "rules/build/letters.h"
#include "rules/tensors/pointwise.h"

namespace spmdx::rules {
namespace {

std::string whole(const Call& call, size_t input) { return dims(call.inputs.at(input).shape.size(), 'A', '!'); }

}  // namespace

// (x, index): places in x as if it were flat.
OpRule take(const Call& call) { return from_letters(call, {{whole(call, 0), "*"}, {"*"}}); }

// (elements, tests): one of them may be a number.
OpRule isin(const Call& call) {
  if (operand(call, 1) < 0) return pointwise(call);
  if (operand(call, 0) < 0) return replicated(call);
  return from_letters(call, {{"*", whole(call, 1)}, {"*"}});
}

// (sorted, values, …, sorter): a row of its own for each row of values, or one row for all of them.
OpRule searchsorted(const Call& call) {
  if (operand(call, 1) < 0) return replicated(call);
  const bool rows = call.inputs[0].shape.size() > 1;
  Letters letters{{rows ? "*S!" : "S!", rows ? "*v" : "*"}, {rows ? "*v" : "*"}};
  if (call.inputs.size() > 2) letters.inputs.push_back(rows ? "*T!" : "T!");
  return from_letters(call, letters);
}

}  // namespace spmdx::rules
