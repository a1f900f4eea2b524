// SPDX-License-Identifier: Apache-2.0
// Starts: a table of the ops that have one.
#include "graph/starts.h"

#include <algorithm>
#include <array>

#include "graph/args.h"

namespace spmdx {
namespace {

constexpr std::array<StartRow, 20> kStartRows = {{
    {.op = "aten.arange.start", .arg = 0, .ends = true},
    {.op = "aten.arange.start_step", .arg = 0, .ends = true},
    {.op = "aten.eq.Scalar", .arg = 1},
    {.op = "aten.full", .arg = 1, .but_zero = true},
    {.op = "aten.ge.Scalar", .arg = 1},
    {.op = "aten.gt.Scalar", .arg = 1},
    {.op = "aten.le.Scalar", .arg = 1},
    {.op = "aten.lt.Scalar", .arg = 1},
    {.op = "aten.masked_fill.Scalar", .arg = 2, .but_zero = true},
    {.op = "aten.ne.Scalar", .arg = 1},
    {.op = "aten.roll", .arg = 1, .whole_op = true},
    {.op = "aten.select.int", .arg = 2, .dim = 1},
    {.op = "aten.select_backward", .arg = 3, .dim = 2, .of_result = true},
    {.op = "aten.select_scatter", .arg = 3, .dim = 2},
    {.op = "aten.slice.Tensor", .arg = 2, .ends = true, .dim = 1},
    {.op = "aten.slice_backward", .arg = 3, .ends = true, .dim = 2, .of_result = true},
    {.op = "aten.slice_scatter", .arg = 3, .ends = true, .dim = 2},
    {.op = "spmdx.place_range", .arg = 2},
    {.op = "spmdx.read_range", .arg = 2},
    {.op = "spmdx.write_range", .arg = 3},
}};

const StartRow* start_row_of(std::string_view op) {
  const auto row = std::lower_bound(kStartRows.begin(), kStartRows.end(), op,
                                    [](const StartRow& one, std::string_view wanted) { return one.op < wanted; });
  return row == kStartRows.end() || row->op != op ? nullptr : &*row;
}

// Whether the dim is there, and the part within it.
bool lies_within(const Call& call, const StartRow& row, int64_t start, int64_t end) {
  const std::vector<TensorType>& types = row.of_result ? call.outputs : call.inputs;
  if (types.empty()) return false;
  const Shape& whole = types[0].shape;
  const auto rank = static_cast<int64_t>(whole.size());
  const int64_t given = integer(call, static_cast<size_t>(row.dim), 0), dim = given < 0 ? given + rank : given;
  if (dim < 0 || dim >= rank || start < 0 || start > end) return false;
  const int64_t size = whole[static_cast<size_t>(dim)];
  return row.ends ? end <= size : start < size;
}

}  // namespace

const StartRow* start_row(const Call& call) {
  const StartRow* row = start_row_of(call.op);
  if (!row) return nullptr;
  const Arg& start = argument(call, row->arg);
  if (row->dim < 0 && !row->ends && std::holds_alternative<std::vector<int64_t>>(start)) return row;
  const auto* from = std::get_if<int64_t>(&start);
  const auto* to = std::get_if<int64_t>(&argument(call, row->last()));
  if (!from || !to || (row->but_zero && *from == 0)) return nullptr;
  return row->dim < 0 || lies_within(call, *row, *from, *to) ? row : nullptr;
}

size_t num_starts(const Call& call) {
  if (!call.start) return 0;
  const auto* list = std::get_if<std::vector<int64_t>>(&call.args[call.start->arg]);
  return list ? list->size() : 1;
}

int64_t length_of(const Call& call) {
  return call.start->ends ? integer(call, call.start->arg + 1, 0) - integer(call, call.start->arg, 0) : 0;
}

void add_starts(const Call& call, std::vector<int64_t>& starts) {
  if (!call.start) return;
  const Arg& start = call.args[call.start->arg];
  if (const auto* one = std::get_if<int64_t>(&start)) {
    starts.push_back(*one);
  } else {
    const auto& list = std::get<std::vector<int64_t>>(start);
    starts.insert(starts.end(), list.begin(), list.end());
  }
}

std::vector<int64_t> starts_of(const Graph& graph) {
  std::vector<int64_t> starts;
  for (const Node& node : graph.nodes) add_starts(*node.call, starts);
  return starts;
}

namespace {

// Takes as many starts as the call has, and moves behind them.
CallRef with_starts(Call call, std::vector<int64_t>::const_iterator& next) {
  const int64_t length = length_of(call);
  Arg& start = call.args[call.start->arg];
  if (auto* list = std::get_if<std::vector<int64_t>>(&start)) {
    for (int64_t& one : *list) one = *next++;
  } else {
    if (call.start->ends) call.args[call.start->arg + 1] = *next + length;
    start = *next++;
  }
  return seal(std::move(call));
}

}  // namespace

CallRef with_starts_of(const Call& call, const Call& other) {
  std::vector<int64_t> starts;
  add_starts(other, starts);
  auto next = starts.cbegin();
  return with_starts(call, next);
}

Graph with_starts(Graph graph, const std::vector<int64_t>& starts) {
  auto next = starts.begin();
  for (Node& node : graph.nodes)
    if (node.call->start) node.call = with_starts(*node.call, next);
  return graph;
}

bool StartsOfPlan::fit(const std::vector<int64_t>& starts) const {
  if (starts.size() != values.size()) return false;
  for (size_t i = 0; i < starts.size(); ++i)
    if (!open[i] && starts[i] != values[i]) return false;
  return std::all_of(equal.begin(), equal.end(),
                     [&](const auto& pair) { return starts[pair.first] == starts[pair.second]; });
}

}  // namespace spmdx
