// SPDX-License-Identifier: Apache-2.0
// Buckets: a collective joins an earlier one if its operand is ready, or one that can wait for it.
#include "passes/buckets.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "passes/readers/uses.h"
#include "passes/strategy/elementwise.h"
#include "rules/lookup.h"

namespace spmdx {
namespace {

// How many nodes apart gathers may be that are merged: a gathered tensor takes memory until its last use.
constexpr size_t kGatherWindow = 48;

// Cheap nodes that may move so that a collective can join a bucket: up to an earlier one, or down behind a later one.
constexpr size_t kMaxMoved = 8;

bool may_bucket(const Node& node) { return is_collective(node) && traits_of(collective_kind(node)).joins; }

bool is_cheap(const Node& node) {
  if (is_collective(node)) return false;
  const OpRuleRef rule = rule_for(node.call);
  return !rule->random && !rule->product && rule->flops_per_element <= 1;
}

// Kind, group, dtype, reduction and place: what collectives that are merged have in common.
using LaneKey = std::tuple<std::string_view, SubAxisSet, DType, Reduction, Place>;

LaneKey lane_of(const Graph& graph, const Node& node) {
  const Value& operand = graph.values[node.inputs[0]];
  return {node.call->op, node.sub_axes, operand.type.dtype, operand.sharding->reduction,
          graph.values[node.output].sharding->place};
}

// By value, what an output is made of element by element, as gradients are. What layers hand on is not: the next one
// waits for it.
std::vector<bool> leads_to_outputs(const Graph& graph) {
  const auto same = std::make_shared<OpRule>();  // of a collective: its result is its operand, laid otherwise
  same->inputs = same->outputs = {{}};
  std::vector<OpRuleRef> rules;
  for (const Node& node : graph.nodes) rules.push_back(is_collective(node) ? same : rule_for(node.call));
  const auto found = becomes_element_by_element(graph, rules, [](const Output&) { return true; });
  return {found.begin(), found.end()};
}

struct Lane {
  std::vector<size_t> buckets;  // in the order in which they run
  size_t waiting = SIZE_MAX;    // the bucket that waits for others
};

class Bucketing {
 public:
  Bucketing(const Graph& graph, int64_t limit, int64_t waiting)
      : graph_(graph), uses_(graph), limit_(limit), waiting_(waiting), time_(graph.nodes.size()) {
    may_wait_ = waiting > 0 ? leads_to_outputs(graph) : std::vector<bool>(graph.values.size(), false);
  }

  Buckets run() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      time_[i] = 2 * i + 1;
      if (may_bucket(graph_.nodes[i])) place(i);
    }
    return {std::move(buckets_), std::move(time_)};
  }

 private:
  void place(size_t i) {
    Lane& lane = lanes_[lane_of(graph_, graph_.nodes[i])];
    Bucket own{{i}, i, graph_.nodes[i].bytes, i, {}};
    if (may_wait_[graph_.nodes[i].output]) look_ahead(own);
    if (join_earlier(lane, own) || join_waiting(lane, own)) return;
    const size_t last = buckets_.size();
    if (waits_longer(own, lane)) lane.waiting = last;
    lane.buckets.push_back(last);
    buckets_.push_back(std::move(own));
  }

  // ---- up to an earlier bucket ---------------------------------------------------------------------------

  // Of the buckets of a lane those from some place on are late enough.
  bool join_earlier(const Lane& lane, const Bucket& own) {
    const size_t i = own.at;
    const Node& node = graph_.nodes[i];
    auto at = lane.buckets.begin();
    const auto end = lane.buckets.end();
    if (collective_kind(node) == Collective::all_gather)
      at = std::partition_point(at, end, [&](size_t b) { return buckets_[b].at + kGatherWindow < i; });
    std::vector<size_t> late;
    const auto ready = [&](size_t b) {
      late.clear();
      return ready_before(graph_.values[node.inputs[0]].producer, buckets_[b].at, late);
    };
    at = std::partition_point(at, end, [&](size_t b) { return !ready(b); });
    at = std::find_if(at, end, [&](size_t b) { return buckets_[b].bytes + node.bytes <= limit_; });
    if (at == end || !ready(*at)) return false;
    for (size_t moved : late) time_[moved] = 2 * buckets_[*at].at;
    join(buckets_[*at], own);
    return true;
  }

  // Whether `producer` runs before the bucket at `at` once the nodes in `late` have moved up. If so, it does before
  // later buckets.
  bool ready_before(NodeId producer, size_t at, std::vector<size_t>& late) const {
    if (producer == kNone || time_[producer] < 2 * at + 1) return true;
    if (std::find(late.begin(), late.end(), producer) != late.end()) return true;
    const Node& node = graph_.nodes[producer];
    if (late.size() == kMaxMoved || !is_cheap(node)) return false;
    late.push_back(producer);
    return std::all_of(node.inputs.begin(), node.inputs.end(),
                       [&](ValueId value) { return ready_before(graph_.values[value].producer, at, late); });
  }

  // ---- down with a bucket that waits ---------------------------------------------------------------------

  // Who reads what it makes, until one of them cannot move.
  void look_ahead(Bucket& own) const {
    own.deadline = SIZE_MAX;
    std::set<size_t> open;
    const auto open_readers = [&](size_t node) {
      for (ValueId r = 0; r < graph_.nodes[node].call->outputs.size(); ++r)
        for (const Read& read : uses_.reads(graph_.nodes[node].output + r)) open.insert(read.node);
    };
    for (open_readers(own.at); !open.empty(); open.erase(open.begin())) {
      const size_t reader = *open.begin();
      if (own.followers.size() == kMaxMoved || !is_cheap(graph_.nodes[reader])) {
        own.deadline = reader;
        return;
      }
      own.followers.push_back(reader);
      open_readers(reader);
    }
  }

  bool join_waiting(Lane& lane, const Bucket& own) {
    if (lane.waiting == SIZE_MAX || own.deadline == own.at) return false;
    Bucket& bucket = buckets_[lane.waiting];
    if (bucket.bytes + own.bytes > waiting_ || !can_wait(bucket, own.at)) return false;
    std::erase(lane.buckets, lane.waiting);
    lane.buckets.push_back(lane.waiting);
    bucket.at = own.at;
    join(bucket, own);
    return true;
  }

  // Or the one that waits now is full.
  bool waits_longer(const Bucket& own, const Lane& lane) const {
    if (own.deadline == own.at) return false;
    if (lane.waiting == SIZE_MAX) return true;
    const Bucket& bucket = buckets_[lane.waiting];
    return bucket.bytes + own.bytes > waiting_ || bucket.deadline <= std::max(own.at, own.deadline);
  }

  // Until node i. Sums of which it makes one, as those of microbatches, do not wait for each other: both would be held.
  bool can_wait(const Bucket& bucket, size_t i) const {
    if (bucket.deadline <= i) return false;
    for (const Read& read : uses_.reads(graph_.nodes[i].output))
      if (std::ranges::find(bucket.followers, read.node) != bucket.followers.end()) return false;
    return std::ranges::none_of(bucket.followers, [&](size_t f) { return f < i && time_[f] < 2 * f + 1; });
  }

  void join(Bucket& bucket, const Bucket& own) {
    bucket.members.push_back(own.at);
    bucket.bytes += own.bytes;
    bucket.deadline = std::min(bucket.deadline, own.deadline);
    bucket.followers.insert(bucket.followers.end(), own.followers.begin(), own.followers.end());
    for (size_t member : bucket.members) time_[member] = 2 * bucket.at + 1;
    for (size_t follower : bucket.followers)
      if (follower < bucket.at) time_[follower] = 2 * bucket.at + 2;
  }

  const Graph& graph_;
  const Uses uses_;
  const int64_t limit_, waiting_;
  std::vector<bool> may_wait_;  // by value
  std::vector<size_t> time_;    // node i at 2i + 1; moved up above a bucket at node n: 2n; down behind it: 2n + 2
  std::vector<Bucket> buckets_;
  std::map<LaneKey, Lane> lanes_;
};

}  // namespace

Buckets buckets_of(const Graph& graph, int64_t limit, int64_t waiting) {
  return Bucketing(graph, limit, waiting).run();
}

}  // namespace spmdx
