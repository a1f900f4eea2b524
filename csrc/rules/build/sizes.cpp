// SPDX-License-Identifier: Apache-2.0
// Sizes: reads boxes dim by dim, and localises the sizes of a result.
#include "rules/build/sizes.h"

#include "base/error.h"
#include "rules/rule/row.h"

namespace spmdx::rules {

std::vector<int64_t> extents(const Box& box) {
  std::vector<int64_t> sizes;
  for (const Range& range : box) sizes.push_back(range.extent);
  return sizes;
}

std::vector<int64_t> starts(const Box& box) {
  std::vector<int64_t> result;
  for (const Range& range : box) result.push_back(range.start);
  return result;
}

void sizes(const Call& call, const Boxes&, const Boxes& outputs, std::vector<Arg>& args) {
  const size_t at = row_of(call).sizes;
  internal_check(at < args.size(), "an op without its sizes");
  args[at] = extents(outputs.at(0));
}

}  // namespace spmdx::rules
