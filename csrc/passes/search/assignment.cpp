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

// A value is moved as often as it is made; an input, or what is made of some before a loop, as often as what reads it
// runs, if nothing else does.
std::vector<int64_t> times_of_values(const Graph& graph) {
  std::vector<int64_t> times(graph.values.size(), 1);
  if (!graph.left_out.phase) return times;
  std::vector<int64_t> fewest(graph.values.size(), INT64_MAX);
  for (const Node& node : graph.nodes) {
    const int64_t here = graph.left_out.of(node);
    for (const ValueId value : node.inputs) fewest[value] = std::min(fewest[value], here);
    for (ValueId r = 0; r < node.call->outputs.size(); ++r) times[node.output + r] = here;
  }
  for (ValueId value = 0; value < times.size(); ++value)
    if (times[value] == 1 && fewest[value] != INT64_MAX) times[value] = fewest[value];
  return times;
}

}  // namespace

Assignment::Assignment(const Graph& graph, const CompileOptions& options, std::vector<bool> transient)
    : graph_(graph),
      options_(options),
      table_(options.topology),
      uses_(graph),
      unsettled_(graph, uses_),
      other_readers_(graph.values.size()),
      inputs_(graph.values.size(), nullptr),
      times_of_value_(times_of_values(graph)),
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
    const ShardingRef here =
        input.physical ? everywhere(input.physical) : replicated(graph.mesh, value.type.shape.size());
    inputs_[input.value] = comes_from_another_mesh(graph, input) ? value.sharding : here;
    if (input.annotation) other_readers_[input.value].push_back({everywhere(input.annotation), true, false});
    for (const DimSharding& dim : inputs_[input.value]->dims)
      if (!dim.empty() && std::find(cutting_.begin(), cutting_.end(), dim.sub_axes) == cutting_.end())
        cutting_.push_back(dim.sub_axes);
  }
  for (const Constraint& constraint : graph.constraints)
    if (graph.values[constraint.value].producer != kNone)
      other_readers_[constraint.value].push_back({graph.values[constraint.value].sharding, true, false});
  for (const Output& output : graph.outputs)
    other_readers_[output.value].push_back(
        {output.annotation ? everywhere(output.annotation) : graph.values[output.value].sharding, false,
         !output.annotation && output.tied == kNone});
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

void Assignment::count_time(NodeId node, int64_t sign) {
  if (!choices_[node]) return;
  const OpTime& time = choices_[node]->time;
  total_ += sign * time_ns(node, *choices_[node]);
  if (!rules_[node]->product) return;
  products_ += sign * times(node) * time.clock_ns;
  over_clock_ += sign * times(node) * (time.weighted_ns - time.clock_ns);
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
  hints_.resize(op.num_tensors());
  for (std::vector<ShardingRef>& hints : hints_) hints.clear();
  if (tensor < hints_.size()) add_new(hints_[tensor], with);
  uses_.each_operand(node, [&](UsesOfOne uses) {
    for (const Use& use : uses) add_hints(use.value, node, uses, hints_[use.operand]);
  });
  for (size_t t = graph_.nodes[node].inputs.size(); t < hints_.size(); ++t)
    add_hints(value(node, t), node, {}, hints_[t]);
  return table_.of(op, hints_);
}

Choices Assignment::neighbours(NodeId node) {
  const OpContext op = context(node);
  Choices result;
  for (const SubAxisList& sub_axes : cutting_)
    for (Strategy& strategy : neighbour_strategies(op, choices_[node]->strategy, sub_axes))
      if (const ChoiceRef& choice = table_.with(op, std::move(strategy))) result.push_back(choice);
  return result;
}

SubAxisSet Assignment::unused(NodeId node) const {
  return graph_.mesh->all_sub_axes() & ~choices_[node]->strategy.used();
}

ChoiceRef Assignment::choice_with(NodeId node, Strategy strategy) {
  return table_.with(context(node), std::move(strategy));
}

ShardingRef wanted_of(const Graph& graph, const Output& output, const ShardingRef& produced) {
  if (output.annotation) return everywhere(output.annotation);
  return output.tied == kNone && !produced->partial ? produced : graph.values[output.value].sharding;
}

}  // namespace spmdx
