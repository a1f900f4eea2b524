// SPDX-License-Identifier: Apache-2.0
// Schedule: one total order of nodes, in which neighbouring collectives have become one.
#include <algorithm>

#include "passes/passes.h"
#include "passes/rewrite.h"

namespace spmdx {
namespace {

// A gathered tensor takes memory until its last use, so gathers are only merged with near ones.
constexpr size_t kGatherWindow = 48;

struct Bucket {
  size_t leader;                           // node index: where the merged collective runs
  std::vector<size_t> members;
  int64_t bytes = 0;
};

bool may_bucket(const Node& node) {
  if (!is_collective(node)) return false;
  const Collective kind = collective_kind(node);
  return kind == Collective::all_reduce || kind == Collective::reduce_scatter || kind == Collective::all_gather;
}

// Same kind, group, dtype and reduction.
bool same_lane(const Graph& graph, const Node& a, const Node& b) {
  const Value& x = graph.values[a.inputs[0]];
  const Value& y = graph.values[b.inputs[0]];
  return a.call->op == b.call->op && a.atoms == b.atoms && x.type.dtype == y.type.dtype &&
         x.sharding->reduction == y.sharding->reduction;
}

// Joins every collective to the earliest bucket its operand is ready for.
std::vector<Bucket> find_buckets(const Graph& graph, int64_t limit) {
  std::vector<Bucket> buckets;
  std::vector<size_t> runs_at(graph.nodes.size());
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    runs_at[i] = i;
    if (!may_bucket(node)) continue;
    const NodeId producer = graph.values[node.inputs[0]].producer;
    auto fits = [&](const Bucket& bucket) {
      if (!same_lane(graph, graph.nodes[bucket.leader], node) || bucket.bytes + node.bytes > limit) return false;
      if (collective_kind(node) == Collective::all_gather && i - bucket.leader > kGatherWindow) return false;
      return producer == kNone || runs_at[producer] < bucket.leader;
    };
    auto bucket = std::find_if(buckets.begin(), buckets.end(), fits);
    if (bucket == buckets.end()) {
      buckets.push_back({i, {i}, node.bytes});
    } else {
      bucket->members.push_back(i);
      bucket->bytes += node.bytes;
      runs_at[i] = bucket->leader;
    }
  }
  return buckets;
}

void emit_bucket(const Graph& graph, const Bucket& bucket, Rewrite& rewrite) {
  Call call;
  call.op = graph.nodes[bucket.leader].call->op;
  std::vector<ValueId> inputs;
  for (size_t i : bucket.members) {
    const Node& node = graph.nodes[i];
    call.args.push_back(TensorArg{static_cast<uint32_t>(inputs.size())});
    call.inputs.push_back(node.call->inputs[0]);
    call.outputs.push_back(node.call->outputs[0]);
    inputs.push_back(rewrite.at(node.inputs[0]));
  }
  const Node& leader = graph.nodes[bucket.leader];
  const ValueId first = rewrite.to().add_node(seal(std::move(call)), std::move(inputs), leader.source);
  Node& merged = rewrite.to().nodes.back();
  merged.atoms = leader.atoms;
  merged.bytes = bucket.bytes;
  merged.cause = leader.cause;
  if (bucket.members.size() > 1) merged.cause += " (and " + std::to_string(bucket.members.size() - 1) + " more)";
  for (size_t k = 0; k < bucket.members.size(); ++k) {
    const ValueId old = graph.nodes[bucket.members[k]].output;
    const ValueId made = first + static_cast<ValueId>(k);
    rewrite.map(old, made);
    rewrite.to().values[made].sharding = graph.values[old].sharding;
    rewrite.to().values[made].why = graph.values[old].why;
  }
}

}  // namespace

void schedule(Graph& graph, const CompileOptions& options) {
  drop_dead(graph);
  if (!graph.mesh) return;
  const std::vector<Bucket> buckets = find_buckets(graph, options.bucket_bytes);
  std::vector<const Bucket*> leads(graph.nodes.size(), nullptr);
  std::vector<bool> joined(graph.nodes.size(), false);
  for (const Bucket& bucket : buckets) {
    leads[bucket.leader] = &bucket;
    for (size_t i : bucket.members) joined[i] = true;
  }
  // A bucket runs where its leader stood. What its members read may stand between, so everything that
  // a member needs has run already: find_buckets made sure of it.
  Rewrite rewrite(graph);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (leads[i])
      emit_bucket(graph, *leads[i], rewrite);
    else if (!joined[i])
      rewrite.keep(graph.nodes[i]);
  }
  graph = rewrite.finish();
}

}  // namespace spmdx
