// SPDX-License-Identifier: Apache-2.0
// Schedule: one total order of nodes, in which neighbouring collectives have become one.
#include <algorithm>
#include <numeric>

#include "graph/rewrite.h"
#include "passes/buckets.h"
#include "passes/memory/peak.h"
#include "passes/memory/rematerialise.h"
#include "passes/passes.h"
#include "passes/strategy/step_time.h"

namespace spmdx {
namespace {

// How many sizes of buckets are tried under a limit of memory, each half as large as the one before.
constexpr int kSizesTried = 5;
// The part of a step by which it may be longer so that nothing else is tried.
constexpr int64_t kNearly = 50;

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

Graph merged(const Graph& graph, const Buckets& buckets) {
  Graph result = graph;
  merge_all(result, buckets);
  return result;
}

bool fits(const Graph& graph, const CompileOptions& options) {
  return predict_peak_bytes(graph).bytes <= options.memory_limit;
}

int64_t largest(const Buckets& buckets) {
  int64_t bytes = 0;
  for (const Bucket& bucket : buckets.all)
    if (bucket.members.size() > 1) bytes = std::max(bytes, bucket.bytes);
  return bytes;
}

// With the largest buckets below `bytes` that fit; if none do, nothing waits.
Graph with_smaller_buckets(const Graph& graph, int64_t bytes, const CompileOptions& options) {
  int64_t waiting = bytes / 2;
  for (int i = 1; i < kSizesTried; ++i) {
    const Buckets buckets = buckets_of(graph, options.bucket_bytes, waiting);
    if (Graph result = merged(graph, buckets); fits(result, options)) return result;
    waiting = std::min(waiting, largest(buckets)) / 2;
  }
  return merged(graph, buckets_of(graph, options.bucket_bytes, 0));
}

// Of a step that computes again what is not held; as good as never where it still does not fit.
int64_t ns_within_limit(Graph graph, const CompileOptions& options) {
  rematerialise(graph, options);
  return fits(graph, options) ? step_ns(graph, options.topology) : INT64_MAX;
}

// What waits is held. Where that is too much, fewer sums wait, or values are computed again, whichever is faster.
Graph merged_within_limit(const Graph& graph, const CompileOptions& options) {
  const Buckets whole = buckets_of(graph, options.bucket_bytes, options.bucket_bytes);
  Graph waits = merged(graph, whole);
  if (fits(waits, options)) return waits;
  Graph fewer = with_smaller_buckets(graph, std::min(options.bucket_bytes, largest(whole)), options);
  const int64_t least_ns = step_ns(waits, options.topology);
  const bool is_fast = step_ns(fewer, options.topology) <= least_ns + least_ns / kNearly;
  if (is_fast && fits(fewer, options)) return fewer;
  const int64_t fewer_ns = ns_within_limit(fewer, options);
  if (fewer_ns == INT64_MAX) return fewer;
  return fewer_ns <= ns_within_limit(waits, options) ? fewer : waits;
}

}  // namespace

void schedule(Graph& graph, const CompileOptions& options) {
  drop_dead(graph);
  if (!graph.mesh) return;
  if (options.memory_limit == kNoLimit)
    merge_all(graph, buckets_of(graph, options.bucket_bytes, options.bucket_bytes));
  else
    graph = merged_within_limit(graph, options);
}

}  // namespace spmdx
