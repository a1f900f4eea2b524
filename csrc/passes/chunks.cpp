// SPDX-License-Identifier: Apache-2.0
#include "passes/chunks.h"

#include <map>
#include <set>

#include "passes/rewrite.h"
#include "rules/maths.h"

namespace spmdx {
namespace {

struct Slice {
  ValueId from = kNone;
  size_t dim = 0;
  int64_t piece = 0, pieces = 0;
};

// (x, dim, start, end, step) of one of equal pieces.
std::optional<Slice> slice_of(const Node& node) {
  if (node.call->op != "aten.slice.Tensor") return std::nullopt;
  const Shape &whole = node.call->inputs[0].shape, &part = node.call->outputs[0].shape;
  const auto number = [&](size_t arg) { return std::get<int64_t>(node.call->args.at(arg)); };
  for (size_t arg = 1; arg < 5; ++arg)
    if (!std::holds_alternative<int64_t>(node.call->args.at(arg))) return std::nullopt;
  const auto dim = static_cast<size_t>(number(1));
  const int64_t size = part.at(dim);
  if (number(4) != 1 || size == 0 || size == whole[dim] || whole[dim] % size || number(2) % size) return std::nullopt;
  return Slice{node.inputs[0], dim, number(2) / size, whole[dim] / size};
}

using Place = std::tuple<ValueId, size_t, int64_t>;  // value, dim, pieces

// Places of which several pieces are taken, and where the dim is cut.
std::set<Place> worth_seeing(const Graph& graph) {
  struct Taken {
    size_t slices = 0;
    bool cut = false;
  };
  std::map<Place, Taken> all;
  for (const Node& node : graph.nodes) {
    const auto slice = slice_of(node);
    if (!slice) continue;
    Taken& taken = all[{slice->from, slice->dim, slice->pieces}];
    ++taken.slices;
    taken.cut = taken.cut || is_cut(graph, slice->from, slice->dim) || is_cut(graph, node.output, slice->dim);
  }
  std::set<Place> worth;
  for (const auto& [place, taken] : all)
    if (taken.slices > 1 && taken.cut) worth.insert(place);
  return worth;
}

}  // namespace

std::optional<Graph> see_chunks(const Graph& graph) {
  const std::set<Place> worth = worth_seeing(graph);
  if (worth.empty()) return std::nullopt;
  Rewrite rewrite(graph);
  std::map<Place, ValueId> seen;
  for (const Node& node : graph.nodes) {
    const auto slice = slice_of(node);
    const Place place = slice ? Place{slice->from, slice->dim, slice->pieces} : Place{};
    if (!slice || !worth.contains(place)) {
      rewrite.keep(node);
      continue;
    }
    Builder builder(rewrite.to(), node.source);
    const TensorType& part = node.call->outputs[0];
    const auto [known, fresh] = seen.try_emplace(place, kNone);
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
