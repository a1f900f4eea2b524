// SPDX-License-Identifier: Apache-2.0
// Starts: integers of a call that a plan may leave open, so that they are given to each run, as parameters are. Where
// the part begins that a slice, a select or a write to a part of a tensor takes; where a range of numbers begins; how
// far a roll moves rows; what elements are compared with, or filled with.
#pragma once
#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace spmdx {

// Where a call of an op has its start: an integer, one for each dim of a list, or an integer with where it ends.
struct StartRow {
  std::string_view op;
  size_t arg = 0;          // the argument that is the start
  bool ends = false;       // the argument after it is an end, which moves with it
  int dim = -1;            // the argument that is the dim in which a part begins; -1: the start is no place in a tensor
  bool of_result = false;  // it is a part of the result; else of the first operand
  bool but_zero = false;   // 0 is no start: passes look for it
  bool whole_op = false;   // only the op itself holds for any start: what comes instead of it depends on this one
  size_t last() const { return ends ? arg + 1 : arg; }
};

// The row of a call that has a start; null where it has none, or one that is no place within the tensor, counted from
// 0.
const StartRow* start_row(const Call& call);
size_t num_starts(const Call& call);
// From its start to its end, counted in rows of the tensor; 0 where it has no end. REQUIRES: it has a start.
int64_t length_of(const Call& call);
// Whether two calls are equal but for their starts. Then their rules are equal, too.
bool same_kind(const Call& a, const Call& b);
// Appends the starts of a call, in order.
void add_starts(const Call& call, std::vector<int64_t>& starts);
// The starts of all nodes, in order.
std::vector<int64_t> starts_of(const Graph& graph);

// The call with the starts of another one, which has as many.
CallRef with_starts_of(const Call& call, const Call& other);
// The graph with other starts, as many as it has.
Graph with_starts(Graph graph, const std::vector<int64_t>& starts);

// What a plan takes for given of the starts of the graph that it was made for.
struct StartsOfPlan {
  std::vector<int64_t> values;                         // of that graph
  std::vector<bool> open;                              // whether the plan holds for any value of this start
  std::vector<std::pair<uint32_t, uint32_t>> equal;    // starts that the plan takes for equal
  bool fit(const std::vector<int64_t>& starts) const;  // whether the plan holds for them
};

}  // namespace spmdx
