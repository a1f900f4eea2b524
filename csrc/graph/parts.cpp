// SPDX-License-Identifier: Apache-2.0
// A table of the ops that read or write a part.
#include "graph/parts.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace spmdx {
namespace {

struct PartRow {
  std::string_view op;  // without its overload
  bool writes = false;  // the result is the first operand, a part of which is written anew
};

constexpr std::array<PartRow, 22> kPartRows = {{
    {"aten.diagonal_scatter", true},
    {"aten.embedding"},
    {"aten.gather"},
    {"aten.index"},
    {"aten.index_add", true},
    {"aten.index_copy", true},
    {"aten.index_fill", true},
    {"aten.index_put", true},
    {"aten.index_reduce", true},
    {"aten.index_select"},
    {"aten.scatter", true},
    {"aten.scatter_add", true},
    {"aten.scatter_reduce", true},
    {"aten.select"},
    {"aten.select_scatter", true},
    {"aten.slice"},
    {"aten.slice_scatter", true},
    {"aten.take"},
    {"spmdx.read_diagonal"},
    {"spmdx.read_range"},
    {"spmdx.write_diagonal", true},
    {"spmdx.write_range", true},
}};

constexpr bool before(const PartRow& a, const PartRow& b) { return a.op < b.op; }
static_assert(std::is_sorted(kPartRows.begin(), kPartRows.end(), before));

const PartRow* part_row_of(std::string_view op) {
  const auto row = std::lower_bound(kPartRows.begin(), kPartRows.end(), PartRow{op}, before);
  return row == kPartRows.end() || row->op != op ? nullptr : &*row;
}

}  // namespace

int64_t touched_bytes(const Call& call) {
  const PartRow* part = part_row_of(base_name(call.op));
  int64_t given = 0, made = 0;
  for (size_t i = part ? 1 : 0; i < call.inputs.size(); ++i) given += call.inputs[i].bytes();
  for (const TensorType& output : call.outputs) made += output.bytes();
  if (part && part->writes && given > 0) return 2 * given;  // of a number alone it is not known how much is written
  return part ? given + 2 * made : given + made;
}

}  // namespace spmdx
