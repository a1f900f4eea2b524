// SPDX-License-Identifier: Apache-2.0
// Row: an index over the table, from the name of an op to its row.
#include "rules/rule/row.h"

#include <unordered_map>

#include "base/error.h"

namespace spmdx::rules {
namespace {

using Index = std::unordered_map<std::string_view, Row>;

const Index& index_of_rows() {
  static const Index index = [] {
    Index map;
    for (const PointwiseOps& group : pointwise_ops())
      for (std::string_view op : group.ops)
        map.emplace(op, Row{.op = op,
                            .family = group.family,
                            .linearity = group.linearity,
                            .linear_inputs = group.linear_inputs,
                            .memory = group.memory});
    for (const Row& row : rows()) map.insert_or_assign(row.op, row);
    return map;
  }();
  return index;
}

}  // namespace

const Row* find_row(std::string_view op) {
  const Index& index = index_of_rows();
  const auto found = find_named(index, op);
  return found == index.end() ? nullptr : &found->second;
}

const Row& row_of(const Call& call) {
  const Row* row = find_row(call.op);
  if (!row) throw InternalError("no row of " + call.op);
  return *row;
}

Form form_of(const Call& call) {
  const Row* row = find_row(call.op);
  return row ? row->form : Form::other;
}

}  // namespace spmdx::rules
