// SPDX-License-Identifier: Apache-2.0
// Exchange: a permute_rows along a cut dim is a collective, whose bytes are the rows that come from elsewhere.
#include "passes/exchange.h"

#include <algorithm>

#include "graph/rows.h"

namespace spmdx {
namespace {

// Rows that the device at `position` has to be sent.
int64_t rows_from_elsewhere(const Range& mine, const RowMap& rows) {
  return std::count_if(rows.sources.begin() + mine.start, rows.sources.begin() + mine.start + mine.extent,
                       [&](int64_t s) { return s >= 0 && (s < mine.start || s >= mine.start + mine.extent); });
}

// On the device that is sent most.
int64_t received_bytes(const Value& value, const RowMap& rows) {
  const Sharding& sharding = *value.sharding;
  const Mesh& mesh = *sharding.mesh;
  const AtomSet cuts = sharding.dim_atoms();
  int64_t most = 0;
  for (int64_t i = 0; i < num_distinct(mesh, cuts); ++i) {
    const Box box = local_box(sharding, value.type.shape, representative(mesh, cuts, i));
    int64_t bytes = rows_from_elsewhere(box[rows.dim], rows) * itemsize(value.type.dtype);
    for (size_t d = 0; d < box.size(); ++d)
      if (static_cast<int64_t>(d) != rows.dim) bytes *= box[d].extent;
    most = std::max(most, bytes);
  }
  return most;
}

void make_collective(const Value& value, Node& node, const RowMap& rows) {
  Call call = *node.call;
  node.cause = "parts of dim " + std::to_string(rows.dim) + " of " + str(value.type, value.sharding) +
               " go from device to device in " + call.op;
  call.op = kPermuteRows;
  node.call = seal(std::move(call));
  node.atoms = atom_set(value.sharding->dims[rows.dim].atoms);
  node.bytes = received_bytes(value, rows);
}

}  // namespace

void exchange(Graph& graph) {
  if (!graph.mesh) return;
  for (Node& node : graph.nodes) {
    if (is_collective(node)) continue;
    const RowMap rows = row_map(*node.call);
    if (rows.dim < 0) continue;
    const Value& value = graph.values[node.output];
    if (!value.sharding->dims[rows.dim].empty()) make_collective(value, node, rows);
  }
}

}  // namespace spmdx
