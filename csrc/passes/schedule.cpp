// SPDX-License-Identifier: Apache-2.0
// Schedule: one total order of nodes, in which neighbouring collectives have become one.
#include <algorithm>
#include <numeric>

#include "graph/rewrite.h"
#include "passes/buckets.h"
#include "passes/memory/peak.h"
#include "passes/passes.h"

namespace spmdx {
namespace {

// Puts the merged collective in the place of its first member. `now`, by value: what its readers are to read.
void merge(Graph& graph, const Bucket& bucket, std::vector<ValueId>& now) {
  const Node& leader = graph.nodes[bucket.members.front()];
  Call call;
  call.op = leader.call->op;
  Node merged = leader;
  merged.inputs.clear();
  merged.output = static_cast<ValueId>(graph.values.size());
  merged.param = 0;
  merged.starts_of = kNone;
  merged.bytes = bucket.bytes;
  merged.cause += " (and " + std::to_string(bucket.members.size() - 1) + " more)";
  for (size_t i : bucket.members) {
    const Node& node = graph.nodes[i];
    call.args.push_back(TensorArg{static_cast<uint32_t>(merged.inputs.size())});
    call.inputs.push_back(node.call->inputs[0]);
    call.outputs.push_back(node.call->outputs[0]);
    merged.inputs.push_back(node.inputs[0]);
    now[node.output] = static_cast<ValueId>(graph.values.size());
    graph.values.push_back(graph.values[node.output]);
  }
  merged.call = seal(std::move(call));
  graph.nodes[bucket.members.front()] = std::move(merged);
}

// In whose place its readers read another.
void read_instead(Graph& graph, const std::vector<ValueId>& now) {
  const auto change = [&](ValueId& value) {
    if (value < now.size() && now[value] != kNone) value = now[value];
  };
  for (Node& node : graph.nodes) std::ranges::for_each(node.inputs, change);
  for (Output& output : graph.outputs) change(output.value);
  for (Constraint& constraint : graph.constraints) change(constraint.value);
}

// Nodes by the time at which they run, without the members of buckets that the first of them stands for.
std::vector<NodeId> order_of(const Buckets& buckets) {
  std::vector<bool> joined(buckets.time.size(), false);
  for (const Bucket& bucket : buckets.all)
    for (size_t i = 1; i < bucket.members.size(); ++i) joined[bucket.members[i]] = true;
  std::vector<NodeId> order(buckets.time.size());
  std::iota(order.begin(), order.end(), 0);
  std::erase_if(order, [&](NodeId node) { return joined[node]; });
  std::ranges::stable_sort(order, {}, [&](NodeId node) { return buckets.time[node]; });
  return order;
}

void merge_all(Graph& graph, const Buckets& buckets) {
  std::vector<ValueId> now(graph.values.size(), kNone);
  bool merges = false;
  for (const Bucket& bucket : buckets.all) {
    if (bucket.members.size() < 2) continue;
    merge(graph, bucket, now);
    merges = true;
  }
  if (!merges) return;
  read_instead(graph, now);
  reorder(graph, order_of(buckets));
}

}  // namespace

void schedule(Graph& graph, const CompileOptions& options) {
  drop_dead(graph);
  if (!graph.mesh) return;
  if (options.memory_limit != kNoLimit) {  // what waits holds operands
    Graph waiting = graph;
    merge_all(waiting, buckets_of(graph, options.bucket_bytes, true));
    const bool fits = predict_peak_bytes(waiting).bytes <= options.memory_limit;
    if (!fits) return merge_all(graph, buckets_of(graph, options.bucket_bytes, false));
  }
  merge_all(graph, buckets_of(graph, options.bucket_bytes, true));
}

}  // namespace spmdx
