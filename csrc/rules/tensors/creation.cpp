// SPDX-License-Identifier: Apache-2.0
// Creation: each device makes its own box of the result.
#include "rules/tensors/creation.h"

#include "base/error.h"
#include "graph/args.h"
#include "rules/build/fits.h"
#include "rules/build/sizes.h"
#include "rules/tensors/pointwise.h"

namespace spmdx::rules {

OpRule creation(const Call& call) { return pointwise(call); }

// Only with integers is the first element of a shard, start + i · step, exact; other aranges are not cut.
OpRule arange(const Call& call) {
  const auto is_integer = [&](size_t arg) {
    return std::holds_alternative<int64_t>(argument(call, arg)) ||
           std::holds_alternative<IntParam>(argument(call, arg));
  };
  const bool whole_numbers = is_integer(0) && is_integer(1) && !std::holds_alternative<double>(argument(call, 2));
  return whole_numbers ? creation(call) : replicated(call);
}

OpRule random_of(const Call& call) {
  fits(!is_complex(call.outputs.at(0).dtype), "complex random numbers have no kernel of their own");
  return pointwise(call);
}

// Arguments: (sizes, starts, extents, …)
void random_box(const Call&, const Boxes&, const Boxes& outputs, std::vector<Arg>& args) {
  internal_check(args.size() > 2, "a random op without its box");
  args[1] = starts(outputs.at(0));
  args[2] = extents(outputs.at(0));
}

// Appends to the arguments of the ATen op the global sizes, and the starts of the box.
void random_place(const Call& call, const Boxes&, const Boxes& outputs, std::vector<Arg>& args) {
  args.emplace_back(std::vector<int64_t>(call.outputs.at(0).shape));
  args.emplace_back(starts(outputs.at(0)));
}

// Arguments: (start, end, step, …), integers.
void arange_range(const Call& call, const Boxes&, const Boxes& outputs, std::vector<Arg>& args) {
  const int64_t step = integer(call, 2, 1);
  const Range range = outputs.at(0).at(0);
  if (const auto* open = std::get_if<IntParam>(&args.at(0))) {
    const IntParam start{open->index, open->plus + range.start * step};
    args[0] = start;
    args[1] = IntParam{start.index, start.plus + range.extent * step};
  } else if (const auto* first = std::get_if<int64_t>(&args.at(0))) {  // else it is not cut
    const int64_t start = *first + range.start * step;
    args[0] = start;
    args[1] = start + range.extent * step;
  }
}

}  // namespace spmdx::rules
