// SPDX-License-Identifier: Apache-2.0
// Lower permutes: a permute_rows or halo along a cut dim becomes a collective; its bytes are the rows that come from
// elsewhere. A range of rows of a dim that is not cut becomes a slice.
#include "passes/lower_permutes.h"

#include <algorithm>

#include "graph/args.h"
#include "graph/rows.h"
#include "rules/rows/ranges.h"
#include "sharding/notation.h"
#include "sharding/shards.h"

namespace spmdx {
namespace {

// The bytes of the device that receives most.
int64_t received_bytes(const Value& from, const Value& to, const RowMap& rows) {
  const Sharding& sharding = *to.sharding;
  const Mesh& mesh = *sharding.mesh;
  const SubAxisSet cuts = sharding.dim_sub_axes();
  int64_t most = 0;
  for (int64_t i = 0; i < num_distinct(mesh, cuts); ++i) {
    const int64_t position = representative(mesh, cuts, i);
    const Box box = local_box(sharding, to.type.shape, position);
    const Range own = local_range(mesh, from.sharding->dims[rows.dim], from.type.shape[rows.dim], position);
    int64_t bytes = rows_from_elsewhere(rows, own, box[rows.dim]) * itemsize(to.type.dtype);
    for (size_t d = 0; d < box.size(); ++d)
      if (static_cast<int64_t>(d) != rows.dim) bytes *= box[d].extent;
    most = std::max(most, bytes);
  }
  return most;
}

void make_collective(const Value& value, Node& node, const RowMap& rows, int64_t bytes) {
  Call call = *node.call;
  node.cause = "parts of dim " + std::to_string(rows.dim) + " of " + str(value.type, value.sharding) +
               " go from device to device in " + call.op;
  call.op = call.op == kHalo ? kCommHalo : kPermuteRows;
  node.call = seal(std::move(call));
  node.sub_axes = sub_axis_set(value.sharding->dims[rows.dim].sub_axes);
  node.bytes = bytes;
}

bool is_cut(const Value& value, size_t dim) { return value.sharding && !value.sharding->dims[dim].empty(); }

// A range of a dim that is whole after all is a slice, which copies nothing.
void make_slice(const Graph& graph, Node& node) {
  const auto dim = static_cast<size_t>(integer(*node.call, 1, 0));
  if (is_cut(graph.values[node.inputs[0]], dim) || is_cut(graph.values[node.output], dim)) return;
  const int64_t first = integer(*node.call, 2, 0), step = integer(*node.call, 3, 1);
  const int64_t last = first + (node.call->outputs[0].shape[dim] - 1) * step;
  Call call = *node.call;
  call.op = "aten.slice.Tensor";
  call.args = {TensorArg{0}, static_cast<int64_t>(dim), first, last + 1, step};
  node.call = seal(std::move(call));
}

}  // namespace

void lower_permutes(Graph& graph) {
  if (!graph.mesh) return;
  for (Node& node : graph.nodes) {
    if (is_collective(node)) continue;
    if (node.call->op == rules::kReadRange) make_slice(graph, node);
    const RowMap rows = row_map(*node.call);
    if (rows.dim < 0) continue;
    const Value &from = graph.values[node.inputs[0]], &to = graph.values[node.output];
    if (to.sharding->dims[rows.dim].empty()) continue;
    const int64_t bytes = received_bytes(from, to, rows);
    if (bytes > 0 || node.call->op == "spmdx.permute_rows") make_collective(from, node, rows, bytes);
  }
}

}  // namespace spmdx
