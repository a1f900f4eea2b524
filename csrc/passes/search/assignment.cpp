// SPDX-License-Identifier: Apache-2.0
// Assignment of choices to nodes: what follows from a change, and what it costs.
#include "passes/search/assignment.h"

#include <algorithm>
#include <map>

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
      users_(spmdx::users(graph)),
      other_readers_(graph.values.size()),
      inputs_(graph.values.size(), nullptr),
      type_of_(number_types(graph)),
      transient_(std::move(transient)),
      choices_(graph.nodes.size()),
      moves_(graph.values.size(), 0) {
  for (const Node& node : graph.nodes) rules_.push_back(rule_for(node.call));
  merged_ = merged_values(graph, rules_);
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
  for (ValueId value = 0; value < graph.values.size(); ++value) {
    if (!inputs_[value]) continue;
    moves_[value] = moves_with(value, kNone, nullptr);
    total_ += moves_[value];
    moving_ += moves_[value];
    merged_moves_ += moves_[value] > 0;
    moved_values_ += moves_[value] > 0;
  }
}

OpContext Assignment::context(NodeId node) const {
  return {graph_.mesh, graph_.nodes[node].call.get(), rules_[node].get(), false};
}

ValueId Assignment::value(NodeId node, size_t tensor) const {
  const Node& at = graph_.nodes[node];
  return tensor < at.inputs.size() ? at.inputs[tensor] : at.output + static_cast<ValueId>(tensor - at.inputs.size());
}

const ShardingRef& Assignment::produced_with(ValueId value, NodeId node, const Choice* choice) const {
  if (inputs_[value]) return inputs_[value];
  const NodeId producer = graph_.values[value].producer;
  if (producer != node) choice = choices_[producer].get();
  static const ShardingRef kUndecided;
  return choice ? choice->placement.outputs[value - graph_.nodes[producer].output] : kUndecided;
}

const ShardingRef& Assignment::produced(ValueId value) const { return produced_with(value, kNone, nullptr); }

const ShardingRef& Assignment::available(ValueId value) const {
  for (const Reader& end : other_readers_[value])
    if (end.at_once) return end.wanted;
  return produced(value);
}

// Ops in program order, then outputs.
template <class Visit>
void Assignment::each_demand(ValueId value, const ShardingRef& produced, NodeId node, const Choice* choice,
                             const Visit& visit) const {
  for (NodeId user : users_[value]) {
    const Choice* with = user == node ? choice : choices_[user].get();
    if (!with) continue;
    const std::vector<ValueId>& operands = graph_.nodes[user].inputs;
    for (size_t i = 0; i < operands.size(); ++i)
      if (operands[i] == value) visit(with->placement.inputs[i], user);
  }
  for (const Reader& end : other_readers_[value])
    if (!end.at_once && (!end.if_partial || produced->partial))
      visit(end.wanted, static_cast<NodeId>(graph_.nodes.size()));
}

std::vector<ShardingRef> Assignment::demands(ValueId value) const {
  std::vector<ShardingRef> list;
  const ShardingRef& made = produced(value);
  if (!made) return list;
  each_demand(value, made, kNone, nullptr, [&](const ShardingRef& wanted, NodeId) { add_new(list, wanted); });
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

int64_t Assignment::moves_with(ValueId value, NodeId node, const Choice* choice) const {
  return moves_with(value, node, choice, transient_[value]);
}

int64_t Assignment::moves_ns_if_kept(ValueId value) const { return moves_with(value, kNone, nullptr, false); }

int64_t Assignment::moves_with(ValueId value, NodeId node, const Choice* choice, bool transient) const {
  return each_way(value, node, choice, transient,
                  [](NodeId, const ShardingRef&, const ShardingRef&, const ReshardPlan&) {});
}

std::vector<Assignment::Way> Assignment::ways_around(NodeId node, const Choice& choice) const {
  std::vector<Way> ways;
  for (ValueId value : values_of(node, true))
    each_way(value, node, &choice, transient_[value],
             [&](NodeId reader, const ShardingRef& from, const ShardingRef& to, const ReshardPlan& plan) {
               ways.push_back({value, reader, from, to, &plan});
             });
  return ways;
}

// As partition makes the collectives: every demand starts from the nearest layout that there is by then, including
// layouts on the way of earlier moves.
template <class Take>
int64_t Assignment::each_way(ValueId value, NodeId node, const Choice* choice, bool transient, const Take& take) const {
  const ShardingRef& made = produced_with(value, node, choice);
  if (!made) return 0;
  const ShardingRef* base = &made;
  int64_t total = 0;
  for (const Reader& end : other_readers_[value]) {
    if (!end.at_once || *base == end.wanted) continue;
    const ReshardPlan& moved = plan(value, made, end.wanted);
    take(kNone, made, end.wanted, moved);
    total = moved.cost_ns;
    base = &end.wanted;
  }
  struct Copy {
    const ShardingRef* sharding;  // belongs to a plan in plans_
    NodeId used;
  };
  std::vector<Copy> known;  // beyond `base`
  each_demand(value, made, node, choice, [&](const ShardingRef& wanted, NodeId at) {
    if (wanted == *base) return;
    if (transient) std::erase_if(known, [&](const Copy& copy) { return copy.used + kLimits.nodes_a_copy_stays < at; });
    const auto same = std::find_if(known.begin(), known.end(), [&](const Copy& c) { return *c.sharding == wanted; });
    if (same != known.end()) {
      same->used = at;
      return;
    }
    const ShardingRef* from = base;
    const ReshardPlan* best = &plan(value, *base, wanted);
    for (const Copy& copy : known) {
      const ReshardPlan& other = plan(value, *copy.sharding, wanted);
      if (other.cost_ns >= best->cost_ns) continue;
      from = copy.sharding;
      best = &other;
    }
    take(at, *from, wanted, *best);
    total += best->cost_ns;
    for (const Move& move : best->moves) known.push_back({&move.to, at});
  });
  return total;
}

std::vector<ValueId> Assignment::values_of(NodeId node, bool results) const {
  const Node& at = graph_.nodes[node];
  std::vector<ValueId> values = at.inputs;
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  for (size_t i = 0; results && i < at.call->outputs.size(); ++i) values.push_back(at.output + static_cast<ValueId>(i));
  return values;
}

int64_t Assignment::cost_around(NodeId node, const Choice& choice) const {
  int64_t cost = time_ns(node, choice);
  for (ValueId value : values_of(node, true)) cost += moves_with(value, node, &choice);
  return cost;
}

int64_t Assignment::cost_before(NodeId node, const Choice& choice) const {
  int64_t cost = time_ns(node, choice);
  for (ValueId value : values_of(node, false)) cost += moves_with(value, node, &choice);
  return cost;
}

void Assignment::put(NodeId node, ChoiceRef choice) {
  const auto count = [&](int64_t sign) {
    if (!choices_[node]) return;
    total_ += sign * time_ns(node, *choices_[node]);
    const OpTime& time = choices_[node]->time;
    if (!rules_[node]->product) return;
    products_ += sign * time.clock_ns;
    over_clock_ += sign * (time.weighted_ns - time.clock_ns);
  };
  count(-1);
  choices_[node] = std::move(choice);
  count(1);
  for (ValueId value : values_of(node, true)) {
    const int64_t now = moves_with(value, kNone, nullptr);
    total_ += now - moves_[value];
    moving_ += now - moves_[value];
    moved_values_ += (now > 0) - (moves_[value] > 0);
    if (merged_[value]) merged_moves_ += (now > 0) - (moves_[value] > 0);
    moves_[value] = now;
  }
}

void Assignment::count_other_ops_by_clock(bool by_clock) {
  others_by_clock_ = by_clock;
  total_ = moving_;
  for (NodeId node = 0; node < choices_.size(); ++node)
    if (choices_[node]) total_ += time_ns(node, *choices_[node]);
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

void Assignment::add_hints(ValueId value, NodeId asking, std::vector<ShardingRef>& hints) const {
  const ShardingRef& made = produced(value);
  if (made && graph_.values[value].producer != asking) add_new(hints, available(value));
  add_new(hints, graph_.values[value].sharding);
  each_demand(value, made ? made : graph_.values[value].sharding, asking, nullptr,
              [&](const ShardingRef& wanted, NodeId) { add_new(hints, wanted); });
}

const Choices& Assignment::choices(NodeId node, size_t tensor, const ShardingRef& with) {
  const OpContext op = context(node);
  Hints hints(op.num_tensors());
  for (size_t t = 0; t < hints.size(); ++t) {
    if (t == tensor) add_new(hints[t], with);
    add_hints(value(node, t), node, hints[t]);
  }
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
