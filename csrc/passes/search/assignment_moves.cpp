// SPDX-License-Identifier: Apache-2.0
// Moves of an assignment: from the layout that a value is made in to each that somebody wants.
#include <algorithm>
#include <utility>

#include "passes/search/assignment.h"
#include "passes/settings/limits.h"

namespace spmdx {
namespace {

// Whether both choices are made, and lay these operands out alike.
bool read_alike(UsesOfOne uses, const Choice* a, const Choice* b) {
  return a && b && std::all_of(uses.begin(), uses.end(), [&](const Use& use) {
           return a->placement.inputs[use.operand] == b->placement.inputs[use.operand];
         });
}

}  // namespace

size_t Assignment::PlanHash::operator()(const PlanKey& key) const {
  return hash_combine(hash_combine(key.type, reinterpret_cast<uintptr_t>(key.from)),
                      reinterpret_cast<uintptr_t>(key.to));
}

// Outputs come after all ops.
void Assignment::add_ends(ValueId value, const ShardingRef& made, std::vector<Stretch>& stretches) const {
  const auto end = static_cast<NodeId>(graph_.nodes.size());
  for (const Reader& reader : other_readers_[value])
    if (!reader.at_once && (!reader.if_partial || made->partial))
      stretches.push_back({&reader.wanted, PositionSet::kEnd, end, end});
}

const ReshardPlan& Assignment::plan(ValueId value, const ShardingRef& from, const ShardingRef& to) const {
  Planned& known = plans_[{type_of_[value], from.get(), to.get()}];
  const TensorType& type = graph_.values[value].type;
  if (!known.plan) known = {from, to, plan_reshard(type.dtype, type.shape, from, to, options_.topology)};
  return *known.plan;
}

int64_t Assignment::move_ns(ValueId value, const ShardingRef& from, const ShardingRef& to) const {
  return from == to ? 0 : times_of_value_[value] * plan(value, from, to).cost_ns;
}

// A transient value is moved in each iteration that reads it.
int64_t Assignment::times_of_use(ValueId value, NodeId reader) const {
  return std::max(times_of_value_[value], reader < graph_.nodes.size() ? times(reader) : 1);
}

// The layout that readers start from: where the user's annotation is, the value is moved there when it is made.
template <class Take>
const ShardingRef* Assignment::pin(ValueId value, const ShardingRef& made, int64_t& total, const Take& take) const {
  const ShardingRef* base = &made;
  for (const Reader& end : other_readers_[value]) {
    if (!end.at_once || *base == end.wanted) continue;
    const ReshardPlan& moved = plan(value, made, end.wanted);
    take(kNone, made, end.wanted, moved);
    total = times_of_value_[value] * moved.cost_ns;
    base = &end.wanted;
  }
  return base;
}

// As partition makes the collectives: every demand starts from the nearest layout that there is by then, including
// layouts on the way of earlier moves.
template <class Take>
int64_t Assignment::each_way(ValueId value, const ShardingRef& base, bool transient, const Take& take) const {
  int64_t total = 0;
  copies_.clear();  // beyond `base`
  effort_.demands_seen += static_cast<int64_t>(stretches_.size());
  for (const Stretch& stretch : stretches_) {
    const ShardingRef& wanted = *stretch.wanted;
    if (wanted == base) continue;
    if (transient)
      std::erase_if(copies_, [&](const Copy& c) { return c.used + kLimits.nodes_a_copy_stays < stretch.first; });
    const auto same =
        std::find_if(copies_.begin(), copies_.end(), [&](const Copy& c) { return *c.sharding == wanted; });
    if (same != copies_.end()) {
      same->used = stretch.last;
      continue;
    }
    const ShardingRef* from = &base;
    const ReshardPlan* best = &plan(value, base, wanted);
    for (const Copy& copy : copies_) {
      const ReshardPlan& other = plan(value, *copy.sharding, wanted);
      if (other.cost_ns >= best->cost_ns) continue;
      from = copy.sharding;
      best = &other;
    }
    take(stretch.first, *from, wanted, *best);
    total += best->cost_ns * (transient ? times_of_use(value, stretch.first) : times_of_value_[value]);
    for (const Move& move : best->moves)
      copies_.push_back({&move.to, move.to == wanted ? stretch.last : stretch.first});
  }
  return total;
}

void Assignment::see_part(ValueId value, const ShardingRef& made, size_t part) const {
  stretches_.clear();
  demands_[value].stretches(part, stretches_);
  if (part + 1 == demands_[value].parts()) add_ends(value, made, stretches_);
}

// Of all parts.
template <class Take>
int64_t Assignment::each_way_of(ValueId value, const ShardingRef& made, const Take& take) const {
  if (!made) return 0;
  int64_t total = 0;
  const ShardingRef* base = pin(value, made, total, take);
  for (size_t part = 0; part < demands_[value].parts(); ++part) {
    see_part(value, made, part);
    total += each_way(value, *base, transient_[value], take);
  }
  return total;
}

int64_t Assignment::moves_if_made(ValueId value, const ShardingRef& made) const {
  return made == produced(value) ? moves_[value] : each_way_of(value, made, IgnoreWays());
}

int64_t Assignment::moves_if_read(NodeId node, UsesOfOne uses, const Choice& choice) const {
  const ValueId value = uses.front().value;
  const ShardingRef& made = produced(value);
  if (!made || read_alike(uses, choices_[node].get(), &choice)) return moves_[value];
  int64_t total = 0;
  const ShardingRef* base = pin(value, made, total, IgnoreWays());
  if (!transient_[value]) {
    stretches_.clear();
    demands_[value].distinct(uses, &choice.placement, stretches_);
    add_ends(value, made, stretches_);
    return total + each_way(value, *base, false, IgnoreWays());
  }
  const size_t part = demands_[value].part_of(uses.front().position);
  const Placement* now = choices_[node] ? &choices_[node]->placement : nullptr;
  demands_[value].change(uses, now, &choice.placement);
  see_part(value, made, part);
  const int64_t with = each_way(value, *base, true, IgnoreWays());
  demands_[value].change(uses, &choice.placement, now);
  return moves_[value] - parts_ns_[value][part] + with;
}

int64_t Assignment::moves_ns_if_kept(ValueId value) const {
  const ShardingRef& made = produced(value);
  if (!made) return 0;
  int64_t total = 0;
  const ShardingRef* base = pin(value, made, total, IgnoreWays());
  stretches_.clear();
  demands_[value].distinct({}, nullptr, stretches_);
  add_ends(value, made, stretches_);
  return total + each_way(value, *base, false, IgnoreWays());
}

int64_t Assignment::cost_before(NodeId node, const Choice& choice, int64_t limit) const {
  ++effort_.costs_asked;
  int64_t cost = time_ns(node, choice);
  uses_.each_operand(node, [&](UsesOfOne uses) {
    if (cost < limit) cost += moves_if_read(node, uses, choice);
  });
  return cost;
}

int64_t Assignment::cost_around(NodeId node, const Choice& choice, int64_t limit) const {
  int64_t cost = cost_before(node, choice, limit);
  for (size_t r = 0; r < choice.placement.outputs.size() && cost < limit; ++r)
    cost += moves_if_made(graph_.nodes[node].output + static_cast<ValueId>(r), choice.placement.outputs[r]);
  return cost;
}

std::vector<Assignment::Way> Assignment::ways_around(NodeId node, const Choice& choice) const {
  std::vector<Way> ways;
  const auto add = [&](ValueId value) {
    return [&ways, value](NodeId reader, const ShardingRef& from, const ShardingRef& to, const ReshardPlan& plan) {
      ways.push_back({value, reader, from, to, &plan});
    };
  };
  const Placement* now = choices_[node] ? &choices_[node]->placement : nullptr;
  uses_.each_operand(node, [&](UsesOfOne uses) {
    const ValueId value = uses.front().value;
    demands_[value].change(uses, now, &choice.placement);
    each_way_of(value, produced(value), add(value));
    demands_[value].change(uses, &choice.placement, now);
  });
  for (size_t r = 0; r < choice.placement.outputs.size(); ++r) {
    const ValueId value = graph_.nodes[node].output + static_cast<ValueId>(r);
    each_way_of(value, choice.placement.outputs[r], add(value));
  }
  return ways;
}

void Assignment::set_moves(ValueId value, int64_t now) {
  const int64_t more = now - moves_[value];
  total_ += more;
  moving_ += more;
  moves_of_outputs_ += times_output_[value] * more;
  const int64_t moved = times_of_value_[value] * ((now > 0) - (moves_[value] > 0));
  moved_values_ += moved;
  if (merged_[value]) merged_moves_ += moved;
  moves_[value] = now;
}

// After the layout that the value is made in has changed.
void Assignment::set_all_parts(ValueId value) {
  const ShardingRef& made = produced(value);
  if (!transient_[value]) return set_moves(value, each_way_of(value, made, IgnoreWays()));
  parts_ns_[value].assign(demands_[value].parts(), 0);
  if (!made) return set_moves(value, 0);
  int64_t total = 0;
  const ShardingRef* base = pin(value, made, total, IgnoreWays());
  for (size_t part = 0; part < parts_ns_[value].size(); ++part) {
    see_part(value, made, part);
    total += parts_ns_[value][part] = each_way(value, *base, true, IgnoreWays());
  }
  set_moves(value, total);
}

void Assignment::put_reads(UsesOfOne uses, const Choice* before, const Choice* now) {
  if (read_alike(uses, before, now) || before == now) return;
  const ValueId value = uses.front().value;
  Demands& demands = demands_[value];
  demands.summarize(before_);
  demands.change(uses, before ? &before->placement : nullptr, now ? &now->placement : nullptr);
  mark_who_notices(value, uses);
  const ShardingRef& made = produced(value);
  if (!made) return;
  if (!transient_[value]) return set_moves(value, each_way_of(value, made, IgnoreWays()));
  const size_t part = demands.part_of(uses.front().position);
  int64_t pinned = 0;
  const ShardingRef* base = pin(value, made, pinned, IgnoreWays());
  see_part(value, made, part);
  const int64_t ns = each_way(value, *base, true, IgnoreWays());
  set_moves(value, moves_[value] + ns - std::exchange(parts_ns_[value][part], ns));
}

// To another reader only the order matters in which layouts are first wanted: among themselves, and whether before its
// own place. Copies of a transient value also live on for a while.
void Assignment::mark_who_notices(ValueId value, UsesOfOne uses) {
  Demands& demands = demands_[value];
  demands.summarize(after_);
  const auto mark_first = [&](const Demands::Summary& summary) {
    unsettled_.mark_readers(value, summary.first, summary.first + 1);
  };
  if (!std::ranges::equal(before_, after_, {}, &Demands::Summary::wanted, &Demands::Summary::wanted)) {
    unsettled_.mark_readers(value, 0, PositionSet::kEnd);
    unsettled_.mark_producer(value);
  } else if (before_ != after_) {
    for (size_t i = 0; i < before_.size(); ++i) {
      const auto [first, last] = std::minmax(before_[i].first, after_[i].first);
      if (first != last) unsettled_.mark_readers(value, first, last + 1);
      mark_first(before_[i]);
      mark_first(after_[i]);
    }
  }
  if (!transient_[value]) return;
  const auto [begin, end] = demands.reach(uses.front().position);
  unsettled_.mark_readers(value, begin, end);
  unsettled_.mark_producer(value);
}

}  // namespace spmdx
