// SPDX-License-Identifier: Apache-2.0
// Schedule: one total order of nodes, in which neighbouring collectives have become one.
#include <algorithm>
#include <map>
#include <tuple>

#include "graph/rewrite.h"
#include "passes/passes.h"
#include "rules/lookup.h"

namespace spmdx {
namespace {

// How many nodes apart gathers may be that are merged: a gathered tensor takes memory until its last use.
constexpr size_t kGatherWindow = 48;

// Cheap nodes that may move up so that a collective can join an earlier bucket.
constexpr size_t kMaxHoisted = 8;

struct Bucket {
  size_t leader;  // node index: where the merged collective runs
  std::vector<size_t> members;
  std::vector<size_t> hoisted;  // nodes that run just before it, in program order
  int64_t bytes = 0;
};

bool may_bucket(const Node& node) { return is_collective(node) && traits_of(collective_kind(node)).joins; }

// Kind, group, dtype, reduction and place: what collectives that are merged have in common.
using Lane = std::tuple<std::string_view, SubAxisSet, DType, Reduction, Place>;

Lane lane_of(const Graph& graph, const Node& node) {
  const Value& operand = graph.values[node.inputs[0]];
  return {node.call->op, node.sub_axes, operand.type.dtype, operand.sharding->reduction,
          graph.values[node.output].sharding->place};
}

// Joins every collective to the earliest bucket its operand is, or can cheaply be made, ready for.
class Bucketing {
 public:
  Bucketing(const Graph& graph, int64_t limit) : graph_(graph), limit_(limit), time_(graph.nodes.size()) {}

  std::vector<Bucket> run() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      time_[i] = 2 * i + 1;
      if (may_bucket(graph_.nodes[i])) place(i);
    }
    for (Bucket& bucket : buckets_) std::sort(bucket.hoisted.begin(), bucket.hoisted.end());
    return std::move(buckets_);
  }

 private:
  // Of the buckets of a lane, which are in the order of their leaders, those from some place on are late enough.
  void place(size_t i) {
    const Node& node = graph_.nodes[i];
    std::vector<size_t>& lane = lanes_[lane_of(graph_, node)];
    auto at = lane.begin();
    if (collective_kind(node) == Collective::all_gather)
      at = std::partition_point(at, lane.end(), [&](size_t b) { return buckets_[b].leader + kGatherWindow < i; });
    std::vector<size_t> late;
    const auto ready = [&](size_t b) {
      late.clear();
      return ready_before(graph_.values[node.inputs[0]].producer, buckets_[b].leader, late);
    };
    at = std::partition_point(at, lane.end(), [&](size_t b) { return !ready(b); });
    at = std::find_if(at, lane.end(), [&](size_t b) { return buckets_[b].bytes + node.bytes <= limit_; });
    if (at != lane.end() && ready(*at)) return join(buckets_[*at], i, late);
    lane.push_back(buckets_.size());
    buckets_.push_back({i, {i}, {}, node.bytes});
  }

  // Whether `producer` runs before `leader` once the nodes in `late` have moved up. If so, it does before later
  // leaders.
  bool ready_before(NodeId producer, size_t leader, std::vector<size_t>& late) const {
    if (producer == kNone || time_[producer] < 2 * leader + 1) return true;
    if (std::find(late.begin(), late.end(), producer) != late.end()) return true;
    const Node& node = graph_.nodes[producer];
    if (is_collective(node) || rule_for(node.call)->random || late.size() == kMaxHoisted) return false;
    if (const OpRuleRef rule = rule_for(node.call); rule->product || rule->flops_per_element > 1) return false;
    late.push_back(producer);
    return std::all_of(node.inputs.begin(), node.inputs.end(),
                       [&](ValueId value) { return ready_before(graph_.values[value].producer, leader, late); });
  }

  void join(Bucket& bucket, size_t i, const std::vector<size_t>& late) {
    bucket.members.push_back(i);
    bucket.bytes += graph_.nodes[i].bytes;
    time_[i] = 2 * bucket.leader + 1;
    for (size_t node : late) time_[node] = 2 * bucket.leader;
    bucket.hoisted.insert(bucket.hoisted.end(), late.begin(), late.end());
  }

  const Graph& graph_;
  const int64_t limit_;
  std::vector<size_t> time_;  // node i at 2i + 1; hoisted above leader l at 2l
  std::vector<Bucket> buckets_;
  std::map<Lane, std::vector<size_t>> lanes_;  // places in `buckets_`
};

// Puts the merged collective in the place of its leader. `now`, by value: what its readers are to read.
void merge(Graph& graph, const Bucket& bucket, std::vector<ValueId>& now) {
  const Node& leader = graph.nodes[bucket.leader];
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
  graph.nodes[bucket.leader] = std::move(merged);
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

// Nodes in their order, but for those that run with the leader of a bucket: with the first, where several need them.
std::vector<NodeId> order_of(const Graph& graph, const std::vector<Bucket>& buckets) {
  std::vector<const Bucket*> leads(graph.nodes.size(), nullptr);
  std::vector<bool> moved(graph.nodes.size(), false);
  for (const Bucket& bucket : buckets) {
    leads[bucket.leader] = &bucket;
    for (size_t i : bucket.members) moved[i] = true;
    for (size_t i : bucket.hoisted) moved[i] = true;
  }
  std::vector<NodeId> order;
  std::vector<bool> done(graph.nodes.size(), false);
  const auto run = [&](size_t node) {
    if (!done[node]) order.push_back(static_cast<NodeId>(node));
    done[node] = true;
  };
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (leads[i]) std::ranges::for_each(leads[i]->hoisted, run);
    if (leads[i] || !moved[i]) run(i);
  }
  return order;
}

}  // namespace

void schedule(Graph& graph, const CompileOptions& options) {
  drop_dead(graph);
  if (!graph.mesh) return;
  const std::vector<Bucket> buckets = Bucketing(graph, options.bucket_bytes).run();
  std::vector<ValueId> now(graph.values.size(), kNone);
  bool merges = false;
  for (const Bucket& bucket : buckets) {
    if (bucket.members.size() < 2) continue;
    merge(graph, bucket, now);
    merges = true;
  }
  if (!merges) return;
  read_instead(graph, now);
  reorder(graph, order_of(graph, buckets));
}

}  // namespace spmdx
