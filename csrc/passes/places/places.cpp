// SPDX-License-Identifier: Apache-2.0
// Places: every value gets its place, and what is read elsewhere is sent there once.
#include "passes/places/places.h"

#include <map>
#include <set>
#include <utility>

#include "graph/places.h"
#include "graph/rewrite.h"
#include "passes/places/boundaries.h"
#include "passes/places/gradient_sums.h"
#include "passes/places/movement.h"
#include "sharding/notation.h"
#include "sharding/shards.h"

namespace spmdx {
namespace {

class Placer {
 public:
  Placer(const Graph& graph, Stages stages) : graph_(graph), stages_(std::move(stages)), rewrite_(graph) {}

  Graph run() {
    for (const Input& input : graph_.inputs) {
      ShardingRef& sharding = rewrite_.to().values[rewrite_.at(input.value)].sharding;
      if (lies_on_another_mesh(graph_, input))
        elsewhere_.insert(input.value);
      else
        sharding = on(sharding, place_at(stages_.of_value[input.value]));
    }
    for (NodeId id = 0; id < graph_.nodes.size(); ++id) visit(id);
    std::vector<ValueId> kept;
    for (const Output& output : graph_.outputs) kept.push_back(finish(output));
    return rewrite_.finish(kept);
  }

 private:
  Place place_at(int32_t stage) const { return stage == kAllStages ? Place{} : Place{stages_.axis, stage}; }

  void visit(NodeId id) {
    const Node& node = graph_.nodes[id];
    const Place place = place_at(stages_.of_node[id]);
    std::vector<ValueId> operands;
    for (const ValueId value : node.inputs)
      operands.push_back(read_at(value, place, node.source, [&] { return node.call->op; }));
    rewrite_.keep(node, std::move(operands));
    Graph& to = rewrite_.to();
    to.nodes.back().recorded.phase = stages_.phase[id];
    for (size_t r = 0; r < node.call->outputs.size(); ++r) {
      ShardingRef& sharding = to.values[rewrite_.at(node.output + static_cast<ValueId>(r))].sharding;
      sharding = on(sharding, place);
    }
  }

  // The value as an op there reads it. What is everywhere is read as it lies.
  template <class Reader>
  ValueId read_at(ValueId old, const Place& place, SourceId source, Reader reader) {
    const ValueId here = rewrite_.at(old);
    const Place& at = rewrite_.to().values[here].sharding->place;
    return at.whole() || at == place || elsewhere_.contains(old) ? here : moved(old, place, source, reader());
  }

  ValueId moved(ValueId old, const Place& place, SourceId source, const std::string& reader) {
    const auto [known, fresh] = moved_.try_emplace({old, place}, kNone);
    if (!fresh) return known->second;
    if (const Node* movement = movement_of(graph_, old))
      return moved_[{old, place}] = made_anew(*movement, place, source, reader);
    Graph& to = rewrite_.to();
    const ValueId here = rewrite_.at(old);
    const Value& value = to.values[here];
    const Mesh& mesh = *graph_.mesh;
    const ShardingRef before = value.sharding, after = on(before, place);
    const bool stays = before->place.whole() || same_devices(mesh, before->place, place);
    Call call{.op = collective_op(stays ? Collective::slice : Collective::send_recv),
              .args = {TensorArg{0}},
              .inputs = {value.type},
              .outputs = {value.type}};
    const TensorType type = value.type;
    const Phase phase = value.producer == kNone ? Phase{} : to.nodes[value.producer].recorded.phase;
    const ValueId made = to.add_node(seal(std::move(call)), {here}, source ? source : source_of(to, here));
    Node& node = to.nodes.back();
    node.recorded.phase = phase;
    if (!stays) node.sub_axes = sub_axis_set(mesh.sub_axes_of_axis(stages_.axis));
    node.bytes = stays ? 0 : bytes_on_a_device(type, before);
    node.cause = str(type, before) + " " + (place.whole() ? "everywhere" : "to " + str(mesh, place)) + " for " + reader;
    to.values[made].sharding = after;
    to.values[made].why = graph_.values[old].why;
    return moved_[{old, place}] = made;
  }

  ValueId made_anew(const Node& node, const Place& place, SourceId source, const std::string& reader) {
    Graph& to = rewrite_.to();
    const ValueId operand = read_at(node.inputs[0], place, source, [&] { return reader; });
    const ValueId made = to.add_node(node.call, {operand}, node.source, node.param);
    to.nodes.back().recorded.phase = stages_.phase[graph_.values[node.output].producer];
    to.nodes.back().starts_of = node.starts_of;
    to.values[made].sharding = on(graph_.values[node.output].sharding, place);
    to.values[made].why = graph_.values[node.output].why;
    return made;
  }

  // An output without an annotation of its own lies where the tensor did that it replaces, or where it was made. What
  // an optimizer keeps goes along with its parameter.
  ValueId finish(const Output& output) {
    const ValueId here = rewrite_.at(output.value);
    const Place at = rewrite_.to().values[here].sharding->place;
    Place wanted = at;
    if (output.annotation) {
      wanted = output.annotation->place.on_device();
    } else if (output.tied != kNone) {
      const Input& tied = graph_.inputs[output.tied];
      const ShardingRef& lies = tied.annotation ? tied.annotation : tied.physical;
      const bool goes_along =
          graph_.kinds.empty() && stages_.after_backward[output.value] && !tied.annotation && !at.whole();
      if (lies && !goes_along) wanted = lies->place.on_device();
    }
    if (!graph_.kinds.empty() && wanted.whole()) return here;  // and the next step begins there
    return wanted == at ? here : moved(output.value, wanted, output.source, "a value that is kept after the step");
  }

  const Graph& graph_;
  const Stages stages_;
  Rewrite rewrite_;
  std::map<std::pair<ValueId, Place>, ValueId> moved_;
  std::set<ValueId> elsewhere_;  // inputs on stages of another mesh, which are brought to this one where they are read
};

}  // namespace

Graph with_places(const PlacedStep& step) { return Placer(step.graph, step.stages).run(); }

std::shared_ptr<const PlacedStep> place(Graph& graph, const CompileOptions& options) {
  for (const Input& input : graph.inputs)
    if (lies_on_another_mesh(graph, input)) graph.values[input.value].sharding = input.physical;
  if (stage_axis(graph) < 0) return nullptr;
  if (!graph.kinds.empty()) {
    auto placed = std::make_shared<const PlacedStep>(placed_by_time(std::move(graph), options));
    graph = with_places(*placed);
    return placed;
  }
  Stages stages = stages_with_least_sent(graph);
  if (auto split = split_gradient_sums(graph, stages)) {
    graph = std::move(split->graph);
    stages = stages_with_least_sent(graph);
  }
  graph = Placer(graph, std::move(stages)).run();
  return nullptr;
}

}  // namespace spmdx
