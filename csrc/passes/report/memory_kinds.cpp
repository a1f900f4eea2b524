// SPDX-License-Identifier: Apache-2.0
// Memory kinds: once from the end, for who reads a value, and once from the beginning, for what it is made of.
#include "passes/report/memory_kinds.h"

#include <algorithm>

#include "graph/places.h"
#include "passes/places/movement.h"
#include "passes/places/stages.h"
#include "rules/lookup.h"
#include "rules/rule/row.h"

namespace spmdx {
namespace {

// In which passes a value is read, as bits.
enum When : uint8_t { nowhere = 0, forward = 1, backward = 2, after = 4 };

class Kinds {
 public:
  explicit Kinds(const Graph& graph)
      : graph_(graph),
        phase_(graph.nodes.size(), 0),
        read_(graph.values.size(), nowhere),
        kept_(graph.values.size(), false),
        outlives_(graph.values.size(), false),
        replaces_(graph.values.size(), kNone),
        kinds_(graph.values.size(), MemoryKind::activation) {
    find_phases();
    for (const Input& input : graph.inputs) kept_[input.value] = input.state;
    for (const Output& output : graph.outputs) {
      outlives_[output.value] = true;
      if (output.tied == kNone) continue;
      const ValueId tied = graph.inputs[output.tied].value;
      kept_[tied] = true;
      if (output.donates) replaces_[output.value] = tied;
    }
  }

  std::vector<MemoryKind> run() {
    for (NodeId id = static_cast<NodeId>(graph_.nodes.size()); id-- > 0;) note_reads(id);
    for (const Input& input : graph_.inputs) kinds_[input.value] = of_input(input.value);
    for (NodeId id = 0; id < graph_.nodes.size(); ++id)
      for (ValueId r = 0; r < graph_.nodes[id].call->outputs.size(); ++r)
        kinds_[graph_.nodes[id].output + r] = of_result(id, graph_.nodes[id].output + r);
    return std::move(kinds_);
  }

 private:
  // What a pass has added belongs to the last of what it reads; 0: to nothing but inputs.
  void find_phases() {
    for (NodeId id = 0; id < graph_.nodes.size(); ++id) {
      const Node& node = graph_.nodes[id];
      phase_[id] = node.recorded.phase.number;
      for (const ValueId value : node.inputs)
        if (node.recorded.phase.number == 0) phase_[id] = std::max(phase_[id], made_in(value));
      if (is_backward(phase_[id])) last_backward_ = std::max(last_backward_, phase_[id]);
    }
  }
  uint32_t made_in(ValueId value) const {
    const NodeId producer = graph_.values[value].producer;
    return producer == kNone ? 0 : phase_[producer];
  }
  When when(uint32_t phase) const {
    if (is_backward(phase)) return backward;
    return phase > last_backward_ && last_backward_ > 0 ? after : forward;
  }

  void note_reads(NodeId id) {
    const Node& node = graph_.nodes[id];
    const bool moved = moves(node);
    uint8_t reads = moved ? nowhere : when(phase_[id]);
    bool outlives = false;
    for (ValueId r = 0; r < node.call->outputs.size(); ++r) {
      if (moved) reads |= read_[node.output + r];
      outlives |= outlives_[node.output + r];
    }
    for (const ValueId value : node.inputs) {
      read_[value] |= reads;
      if (moved ? outlives : phase_[id] > made_in(value)) outlives_[value] = true;
    }
  }

  bool moves(const Node& node) const {
    return is_collective(node) || is_host_copy(node) || is_cast(node) ||
           (node.call->outputs.size() == 1 && movement_of(graph_, node.output));
  }

  static bool is_cast(const Node& node) {
    const rules::Row* row = rules::find_row(node.call->op);
    return row && row->form == rules::Form::cast;
  }

  MemoryKind of_input(ValueId value) const {
    if (!kept_[value]) return MemoryKind::input;
    if (read_[value] & forward || read_[value] == nowhere) return MemoryKind::parameter;
    return read_[value] & backward ? MemoryKind::gradient : MemoryKind::optimizer_state;
  }

  MemoryKind of_result(NodeId id, ValueId value) const {
    const Node& node = graph_.nodes[id];
    if (replaces_[value] != kNone) return kinds_[replaces_[value]];
    const bool moved = moves(node);
    const auto made_of = [&](MemoryKind kind) {
      return moved && !node.inputs.empty() && kinds_[node.inputs[value_of(node, value)]] == kind;
    };
    if (made_of(MemoryKind::parameter) || made_of(MemoryKind::gathered)) return MemoryKind::gathered;
    for (const MemoryKind kind : {MemoryKind::gradient, MemoryKind::optimizer_state})
      if (made_of(kind)) return kind;
    const When at = when(phase_[id]);
    if (at == after) return MemoryKind::update;
    if (at == backward && outlives_[value]) return MemoryKind::gradient;
    return is_collective(node) ? MemoryKind::collective : MemoryKind::activation;
  }
  // Collectives bring one result for each operand.
  static size_t value_of(const Node& node, ValueId value) { return is_collective(node) ? value - node.output : 0; }

  const Graph& graph_;
  uint32_t last_backward_ = 0;
  std::vector<uint32_t> phase_;        // by node
  std::vector<uint8_t> read_;          // by value: When
  std::vector<bool> kept_, outlives_;  // from step to step; beyond the pass that makes it
  std::vector<ValueId> replaces_;      // the input whose new value this is
  std::vector<MemoryKind> kinds_;
};

}  // namespace

std::string_view name(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::parameter:
      return "parameters";
    case MemoryKind::gradient:
      return "gradients";
    case MemoryKind::optimizer_state:
      return "optimizer state";
    case MemoryKind::activation:
      return "activations";
    case MemoryKind::gathered:
      return "gathered parameters";
    case MemoryKind::collective:
      return "buffers of collectives";
    case MemoryKind::update:
      return "the update";
    case MemoryKind::input:
      return "inputs";
  }
  return {};
}

std::vector<MemoryKind> memory_kinds(const Graph& graph) { return Kinds(graph).run(); }

}  // namespace spmdx
