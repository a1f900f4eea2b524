// SPDX-License-Identifier: Apache-2.0
// Assignment of choices to nodes: what follows from a change, and what it costs.
#include "passes/search/assignment.h"

#include <algorithm>
#include <map>
#include <utility>

#include "passes/search/merged_starts.h"
#include "passes/settings/limits.h"
#include "rules/lookup.h"
namespace spmdx {
namespace {

void add_new(std::vector<ShardingRef>& list, const ShardingRef& sharding) {
  if (sharding && list.size() < kLimits.hints && std::find(list.begin(), list.end(), sharding) == list.end())
    list.push_back(sharding);
}

std::vector<uint32_t> number_types(const Graph& graph) {
  std::map<std::pair<int64_t, Shape>, uint32_t> numbers;
  std::vector<uint32_t> result;
  for (const Value& value : graph.values) {
    const auto key = std::pair{itemsize(value.type.dtype), value.type.shape};
    result.push_back(numbers.try_emplace(key, static_cast<uint32_t>(numbers.size())).first->second);
  }
  return result;
}

}  // namespace

size_t Assignment::PlanHash::operator()(const PlanKey& key) const {
  return hash_combine(hash_combine(key.type, reinterpret_cast<uintptr_t>(key.from)),
                      reinterpret_cast<uintptr_t>(key.to));
}

Assignment::Assignment(const Graph& graph, const CompileOptions& options, std::vector<bool> transient)
    : graph_(graph),
      options_(options),
      table_(options.topology),
      uses_(graph),
      unsettled_(graph, uses_),
      other_readers_(graph.values.size()),
      inputs_(graph.values.size(), nullptr),
      type_of_(number_types(graph)),
      transient_(std::move(transient)),
      parts_ns_(graph.values.size()),
      readers_hash_(graph.values.size(), 0),
      times_output_(graph.values.size(), 0),
      choices_(graph.nodes.size()),
      moves_(graph.values.size(), 0) {
  for (const Node& node : graph.nodes) rules_.push_back(rule_for(node.call));
  merged_ = merged_values(graph, rules_);
  for (const Output& output : graph.outputs) ++times_output_[output.value];
  for (ValueId value = 0; value < graph.values.size(); ++value)
    demands_.emplace_back(uses_.reads(value), transient_[value]);
  for (const Node& node : graph.nodes)  // in order, and each once
    uses_.each_operand(static_cast<NodeId>(&node - graph.nodes.data()), [&](UsesOfOne uses) {
      uint64_t& hash = readers_hash_[uses.front().value];
      hash = hash_combine(hash, node.call->hash);
    });
  for (const Input& input : graph.inputs) {
    const Value& value = graph.values[input.value];
    const ShardingRef here = input.physical ? input.physical : replicated(graph.mesh, value.type.shape.size());
    inputs_[input.value] = comes_from_another_mesh(graph, input) ? value.sharding : here;
    if (input.annotation) other_readers_[input.value].push_back({input.annotation, true, false});
    for (const DimSharding& dim : inputs_[input.value]->dims)
      if (!dim.empty() && std::find(cutting_.begin(), cutting_.end(), dim.sub_axes) == cutting_.end())
        cutting_.push_back(dim.sub_axes);
  }
  for (const Constraint& constraint : graph.constraints)
    if (graph.values[constraint.value].producer != kNone)
      other_readers_[constraint.value].push_back({graph.values[constraint.value].sharding, true, false});
  for (const Output& output : graph.outputs)
    other_readers_[output.value].push_back({output.annotation ? output.annotation : graph.values[output.value].sharding,
                                            false, !output.annotation && output.tied == kNone});
  for (const Input& input : graph.inputs) set_all_parts(input.value);
}

OpContext Assignment::context(NodeId node) const {
  return {graph_.mesh, graph_.nodes[node].call.get(), rules_[node].get(), false};
}

ValueId Assignment::value(NodeId node, size_t tensor) const {
  const Node& at = graph_.nodes[node];
  return tensor < at.inputs.size() ? at.inputs[tensor] : at.output + static_cast<ValueId>(tensor - at.inputs.size());
}

const ShardingRef& Assignment::produced(ValueId value) const {
  if (inputs_[value]) return inputs_[value];
  static const ShardingRef kUndecided;
  const NodeId producer = graph_.values[value].producer;
  const Choice* choice = choices_[producer].get();
  return choice ? choice->placement.outputs[value - graph_.nodes[producer].output] : kUndecided;
}

const ShardingRef& Assignment::available(ValueId value) const {
  for (const Reader& end : other_readers_[value])
    if (end.at_once) return end.wanted;
  return produced(value);
}

// Outputs come after all ops.
void Assignment::add_ends(ValueId value, const ShardingRef& made, std::vector<Stretch>& stretches) const {
  const auto end = static_cast<NodeId>(graph_.nodes.size());
  for (const Reader& reader : other_readers_[value])
    if (!reader.at_once && (!reader.if_partial || made->partial))
      stretches.push_back({&reader.wanted, PositionSet::kEnd, end, end});
}

std::vector<ShardingRef> Assignment::demands(ValueId value) const {
  std::vector<ShardingRef> list;
  const ShardingRef& made = produced(value);
  if (!made) return list;
  stretches_.clear();
  demands_[value].distinct({}, nullptr, stretches_);
  add_ends(value, made, stretches_);
  for (const Stretch& stretch : stretches_) add_new(list, *stretch.wanted);
  return list;
}

const ReshardPlan& Assignment::plan(ValueId value, const ShardingRef& from, const ShardingRef& to) const {
  Planned& known = plans_[{type_of_[value], from.get(), to.get()}];
  const TensorType& type = graph_.values[value].type;
  if (!known.plan) known = {from, to, plan_reshard(type.dtype, type.shape, from, to, options_.topology)};
  return *known.plan;
}

int64_t Assignment::move_ns(ValueId value, const ShardingRef& from, const ShardingRef& to) const {
  return from == to ? 0 : plan(value, from, to).cost_ns;
}

// The layout that readers start from: where the user's annotation is, the value is moved there when it is made.
template <class Take>
const ShardingRef* Assignment::pin(ValueId value, const ShardingRef& made, int64_t& total, const Take& take) const {
  const ShardingRef* base = &made;
  for (const Reader& end : other_readers_[value]) {
    if (!end.at_once || *base == end.wanted) continue;
    const ReshardPlan& moved = plan(value, made, end.wanted);
    take(kNone, made, end.wanted, moved);
    total = moved.cost_ns;
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
    total += best->cost_ns;
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

bool Assignment::reads_alike(NodeId node, UsesOfOne uses, const Choice& choice) const {
  return choices_[node] && std::all_of(uses.begin(), uses.end(), [&](const Use& use) {
           return choices_[node]->placement.inputs[use.operand] == choice.placement.inputs[use.operand];
         });
}

int64_t Assignment::moves_if_read(NodeId node, UsesOfOne uses, const Choice& choice) const {
  const ValueId value = uses.front().value;
  const ShardingRef& made = produced(value);
  if (!made || reads_alike(node, uses, choice)) return moves_[value];
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

int64_t Assignment::cost_before(NodeId node, const Choice& choice) const {
  ++effort_.costs_asked;
  int64_t cost = time_ns(node, choice);
  uses_.each_operand(node, [&](UsesOfOne uses) { cost += moves_if_read(node, uses, choice); });
  return cost;
}

int64_t Assignment::cost_around(NodeId node, const Choice& choice) const {
  int64_t cost = cost_before(node, choice);
  for (size_t r = 0; r < choice.placement.outputs.size(); ++r)
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

void Assignment::count_time(NodeId node, int64_t sign) {
  if (!choices_[node]) return;
  const OpTime& time = choices_[node]->time;
  total_ += sign * time_ns(node, *choices_[node]);
  if (!rules_[node]->product) return;
  products_ += sign * time.clock_ns;
  over_clock_ += sign * (time.weighted_ns - time.clock_ns);
}

void Assignment::set_moves(ValueId value, int64_t now) {
  const int64_t more = now - moves_[value];
  total_ += more;
  moving_ += more;
  moves_of_outputs_ += times_output_[value] * more;
  moved_values_ += (now > 0) - (moves_[value] > 0);
  if (merged_[value]) merged_moves_ += (now > 0) - (moves_[value] > 0);
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

void Assignment::put(NodeId node, ChoiceRef choice) {
  count_time(node, -1);
  const ChoiceRef before = std::exchange(choices_[node], std::move(choice));
  const Choice* now = choices_[node].get();
  count_time(node, 1);
  uses_.each_operand(node, [&](UsesOfOne uses) { put_reads(uses, before.get(), now); });
  for (size_t r = 0; r < graph_.nodes[node].call->outputs.size(); ++r) {
    if (before && now && before->placement.outputs[r] == now->placement.outputs[r]) continue;
    const ValueId value = graph_.nodes[node].output + static_cast<ValueId>(r);
    set_all_parts(value);
    unsettled_.mark_readers(value, 0, PositionSet::kEnd);
  }
  unsettled_.mark(node);
}

void Assignment::put_reads(UsesOfOne uses, const Choice* before, const Choice* now) {
  const ValueId value = uses.front().value;
  Demands& demands = demands_[value];
  demands.summarize(before_);
  const bool changed = demands.change(uses, before ? &before->placement : nullptr, now ? &now->placement : nullptr);
  if (!changed) return;
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
// own place. Copies of a transient value also live on within a part.
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
  const auto [begin, end] = demands.positions(demands.part_of(uses.front().position));
  unsettled_.mark_readers(value, begin, end);
  unsettled_.mark_producer(value);
}

void Assignment::count_other_ops_by_clock(bool by_clock) {
  others_by_clock_ = by_clock;
  total_ = moving_;
  for (NodeId node = 0; node < choices_.size(); ++node)
    if (choices_[node]) total_ += time_ns(node, *choices_[node]);
  unsettled_.mark_all();
}

void Assignment::restart(const std::vector<ChoiceRef>& choices) {
  for (NodeId node = 0; node < choices_.size(); ++node)
    if (choices_[node]) put(node, nullptr);
  for (NodeId node = 0; node < choices.size(); ++node) put(node, choices[node]);
  forget();
}

void Assignment::decide(NodeId node, ChoiceRef choice) {
  log_.emplace_back(node, choices_[node]);
  put(node, std::move(choice));
}

void Assignment::undo(size_t mark) {
  for (; log_.size() > mark; log_.pop_back()) put(log_.back().first, log_.back().second);
}

void Assignment::forget() { log_.clear(); }

// `uses` of the node that asks.
void Assignment::add_hints(ValueId value, NodeId asking, UsesOfOne uses, std::vector<ShardingRef>& hints) const {
  const ShardingRef& made = produced(value);
  const ShardingRef& propagated = graph_.values[value].sharding;
  if (made && graph_.values[value].producer != asking) add_new(hints, available(value));
  add_new(hints, propagated);
  stretches_.clear();
  demands_[value].distinct(uses, nullptr, stretches_);
  add_ends(value, made ? made : propagated, stretches_);
  for (const Stretch& stretch : stretches_) add_new(hints, *stretch.wanted);
}

const Choices& Assignment::choices(NodeId node, size_t tensor, const ShardingRef& with) {
  const OpContext op = context(node);
  Hints hints(op.num_tensors());
  if (tensor < hints.size()) add_new(hints[tensor], with);
  uses_.each_operand(node, [&](UsesOfOne uses) {
    for (const Use& use : uses) add_hints(use.value, node, uses, hints[use.operand]);
  });
  for (size_t t = graph_.nodes[node].inputs.size(); t < hints.size(); ++t)
    add_hints(value(node, t), node, {}, hints[t]);
  return table_.of(op, hints);
}

Choices Assignment::neighbours(NodeId node) const {
  const OpContext op = context(node);
  Choices result;
  for (const std::vector<SubAxisId>& sub_axes : cutting_)
    for (Strategy& strategy : neighbour_strategies(op, choices_[node]->strategy, sub_axes))
      if (ChoiceRef choice = choice_of(op, std::move(strategy), options_.topology)) result.push_back(std::move(choice));
  return result;
}

SubAxisSet Assignment::unused(NodeId node) const {
  return graph_.mesh->all_sub_axes() & ~choices_[node]->strategy.used();
}

ChoiceRef Assignment::choice_with(NodeId node, Strategy strategy) const {
  return choice_of(context(node), std::move(strategy), options_.topology);
}

ShardingRef wanted_of(const Graph& graph, const Output& output, const ShardingRef& produced) {
  if (output.annotation) return output.annotation;
  return output.tied == kNone && !produced->partial ? produced : graph.values[output.value].sharding;
}

}  // namespace spmdx
