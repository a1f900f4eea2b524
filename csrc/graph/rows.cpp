// SPDX-License-Identifier: Apache-2.0
// Rows: read off a call.
#include "graph/rows.h"

#include "base/error.h"

namespace spmdx {

RowMap row_map(const Call& call) {
  if (call.op != kPermuteRows && call.op != "spmdx.permute_rows") return {};
  const auto* dim = call.args.size() == 3 ? std::get_if<int64_t>(&call.args[1]) : nullptr;
  const auto* sources = dim ? std::get_if<std::vector<int64_t>>(&call.args[2]) : nullptr;
  internal_check(sources && *dim >= 0 && *dim < static_cast<int64_t>(call.inputs.at(0).shape.size()) &&
                     static_cast<int64_t>(sources->size()) == call.inputs[0].shape[*dim],
                 call.op + " does not name a source for every part of a dim");
  return {*dim, *sources};
}

}  // namespace spmdx
