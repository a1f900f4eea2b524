// SPDX-License-Identifier: Apache-2.0
// Split views: slices of equal pieces of a dim become a view of the dim as pieces and selects.
#include "passes/rewrites/split_views.h"

#include <map>
#include <set>

#include "graph/rewrite.h"
#include "graph/rows.h"
#include "rules/build/builder.h"
#include "rules/build/op_builder.h"
#include "rules/rows/taken_rows.h"
#include "rules/rule/row.h"

namespace spmdx {
namespace {

struct Slice {
  ValueId from = kNone;
  size_t dim = 0;
  int64_t piece = 0, pieces = 0;
};

// The first row and the dim, where consecutive rows are taken.
std::optional<std::pair<int64_t, size_t>> run_of_rows(const Call& call) {
  if (call.op == kTakeRows) {
    const RowMap rows = row_map(call);
    for (size_t i = 1; i < rows.sources.size(); ++i)
      if (rows.sources[i] != rows.sources[0] + static_cast<int64_t>(i)) return std::nullopt;
    if (rows.sources.empty() || rows.sources[0] < 0) return std::nullopt;
    return std::pair{rows.sources[0], static_cast<size_t>(rows.dim)};
  }
  const std::vector<rules::TakenRows> rows =
      rules::form_of(call) == rules::Form::slice ? rules::taken_rows(call) : std::vector<rules::TakenRows>{};
  if (rows.size() != 1 || rows[0].step != 1) return std::nullopt;
  return std::pair{rows[0].first, rows[0].dim};
}

// One of equal pieces.
std::optional<Slice> slice_of(const Node& node) {
  const auto run = run_of_rows(*node.call);
  if (!run) return std::nullopt;
  const auto [first, dim] = *run;
  const int64_t whole = node.call->inputs[0].shape[dim], size = node.call->outputs[0].shape.at(dim);
  if (size == 0 || size == whole || whole % size || first % size) return std::nullopt;
  return Slice{node.inputs[0], dim, first / size, whole / size};
}

using Pieces = std::tuple<ValueId, size_t, int64_t>;  // value, dim, pieces

// Values and dims of which several pieces are taken, and where the dim is cut.
std::set<Pieces> worth_seeing(const Graph& graph) {
  struct Taken {
    size_t slices = 0;
    bool cut = false;
  };
  std::map<Pieces, Taken> all;
  for (const Node& node : graph.nodes) {
    const auto slice = slice_of(node);
    if (!slice) continue;
    Taken& taken = all[{slice->from, slice->dim, slice->pieces}];
    ++taken.slices;
    taken.cut =
        taken.cut || rules::is_cut(graph, slice->from, slice->dim) || rules::is_cut(graph, node.output, slice->dim);
  }
  std::set<Pieces> worth;
  for (const auto& [pieces, taken] : all)
    if (taken.slices > 1 && taken.cut) worth.insert(pieces);
  return worth;
}

}  // namespace

std::optional<Graph> see_split_views(const Graph& graph) {
  const std::set<Pieces> worth = worth_seeing(graph);
  if (worth.empty()) return std::nullopt;
  Rewrite rewrite(graph);
  std::map<Pieces, ValueId> seen;
  for (const Node& node : graph.nodes) {
    const auto slice = slice_of(node);
    const Pieces pieces = slice ? Pieces{slice->from, slice->dim, slice->pieces} : Pieces{};
    if (!slice || !worth.contains(pieces)) {
      rewrite.keep(node);
      continue;
    }
    Builder builder(rewrite.to(), node.source);
    const TensorType& part = node.call->outputs[0];
    const auto [known, fresh] = seen.try_emplace(pieces, kNone);
    if (fresh) {
      Shape shape = part.shape;
      shape.insert(shape.begin() + static_cast<long>(slice->dim), slice->pieces);
      known->second =
          builder.emit("aten.view", {TensorArg{0}, shape}, {rewrite.at(slice->from)}, {{part.dtype, shape, false}});
    }
    rewrite.map(node.output,
                builder.emit("aten.select.int", {TensorArg{0}, static_cast<int64_t>(slice->dim), slice->piece},
                             {known->second}, {part}));
  }
  return rewrite.finish();
}

}  // namespace spmdx
