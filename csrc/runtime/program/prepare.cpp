// SPDX-License-Identifier: Apache-2.0
// Prepares a graph: what every device's own call is, and which of them are the same.
#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>

#include "base/error.h"
#include "graph/places.h"
#include "rules/lookup.h"
#include "runtime/program/program.h"
#include "sharding/shards.h"

namespace spmdx {
namespace {

SubAxisSet used_sub_axes(const Value& value) { return value.sharding ? value.sharding->used() : 0; }

Box box_of(const Value& value, int64_t position) {
  if (value.sharding) return local_box(*value.sharding, value.type.shape, position);
  Box whole;
  for (int64_t size : value.type.shape) whole.push_back({0, size});
  return whole;
}

// The tensor has no elements here, and has some elsewhere.
bool emptied_by_sharding(const TensorType& local, const TensorType& global) {
  return numel(local.shape) == 0 && numel(global.shape) != 0;
}

bool is_empty(const TensorType& type) { return type.dtype == DType::unknown || numel(type.shape) == 0; }

// Some operand or result is not whole here.
bool is_cut(const Call& local, const Call& global) {
  auto alike = [](const TensorType& a, const TensorType& b) { return a.shape == b.shape; };
  return !std::equal(local.inputs.begin(), local.inputs.end(), global.inputs.begin(), alike) ||
         !std::equal(local.outputs.begin(), local.outputs.end(), global.outputs.begin(), alike);
}

// What a route depends on: the layouts of a value, rows that change places, and how it may go.
using RouteKey = std::tuple<Shape, ShardingRef, ShardingRef, int64_t, std::vector<int64_t>, NativeRules>;

class Preparer {
 public:
  Preparer(const Graph& graph, Backend& backend, const Processes& processes)
      : graph_(graph), backend_(backend), processes_(processes), holdings_(processes) {}

  Program run() {
    assign_slots();
    find_reads();
    for (NodeId id = 0; id < graph_.nodes.size(); ++id)
      is_collective(graph_.nodes[id]) ? add_collectives(id) : add_op(id);
    for (const Instruction& instruction : program_.instructions) {
      program_.most_operands = std::max(program_.most_operands, instruction.num_operands);
      program_.most_results = std::max(program_.most_results, instruction.num_results);
    }
    return std::move(program_);
  }

 private:
  void assign_slots() {
    for (const Value& value : graph_.values) {
      const SubAxisSet used = used_sub_axes(value);
      internal_check(used == 0 || graph_.mesh, "a value is sharded in a graph without mesh");
      // An input may lie on another mesh. What no sharding cuts is whole in every process.
      const size_t shards = value.sharding ? holdings_.of(*value.sharding).size() : 1;
      program_.first_slot.push_back(program_.total_slots);
      program_.num_slots.push_back(static_cast<uint32_t>(shards));
      program_.total_slots += static_cast<uint32_t>(shards);
    }
    filled_.assign(program_.total_slots, false);
  }

  void find_reads() {
    is_read_.assign(graph_.values.size(), false);
    for (const Node& node : graph_.nodes)
      for (ValueId value : node.inputs) is_read_[value] = true;
    for (const Output& output : graph_.outputs) is_read_[output.value] = true;
  }

  uint32_t slot_at(ValueId id, int64_t position) {
    const Value& value = graph_.values[id];
    return program_.first_slot[id] + (used_sub_axes(value) ? holdings_.index_at(*value.sharding, position) : 0);
  }

  Instruction start(NodeId id, InstructionKind kind) const {
    Instruction instruction;
    instruction.kind = kind;
    instruction.node = id;
    instruction.first_operand = static_cast<uint32_t>(program_.operands.size());
    instruction.first_result = static_cast<uint32_t>(program_.results.size());
    return instruction;
  }

  // Operand i of a collective becomes result i.
  void add_collectives(NodeId id) {
    const Node& node = graph_.nodes[id];
    internal_check(node.inputs.size() == node.call->outputs.size(), node.call->op + " does not pair its operands");
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId from = node.inputs[i], to = node.output + static_cast<ValueId>(i);
      const Value &source = graph_.values[from], &target = graph_.values[to];
      internal_check(source.sharding && target.sharding, node.call->op + " without a sharding");
      Instruction instruction = start(id, InstructionKind::collective);
      instruction.index = static_cast<uint32_t>(program_.collectives.size());
      program_.collectives.push_back(make_collective(source, target, row_map(*node.call), node.native));
      instruction.num_operands = program_.num_slots[from];
      instruction.num_results = program_.num_slots[to];
      for (uint32_t s = 0; s < instruction.num_operands; ++s)
        program_.operands.push_back({program_.first_slot[from] + s, false});
      for (uint32_t s = 0; s < instruction.num_results; ++s) program_.results.push_back(program_.first_slot[to] + s);
      program_.instructions.push_back(instruction);
    }
  }

  CollectiveCall make_collective(const Value& source, const Value& target, RowMap rows, bool native) {
    const Relayout relayout{source.type.shape, source.sharding, target.sharding, std::move(rows)};
    const NativeRules rules = rules_for({native, native}, source.type.dtype, relayout.reduction());
    const RouteKey key{relayout.shape, relayout.from, relayout.to, relayout.rows.dim, relayout.rows.sources, rules};
    const auto [at, fresh] = routes_.try_emplace(key, static_cast<uint32_t>(program_.routes.size()));
    if (fresh) program_.routes.push_back(make_route(processes_, relayout, rules));
    return {source.type.dtype, relayout.reduction(), at->second};
  }

  void add_op(NodeId id) {
    const Node& node = graph_.nodes[id];
    SubAxisSet sub_axes = 0;
    for (ValueId input : node.inputs) sub_axes |= used_sub_axes(graph_.values[input]);
    for (size_t r = 0; r < node.call->outputs.size(); ++r) sub_axes |= used_sub_axes(graph_.values[node.output + r]);
    if (!graph_.mesh) return add_shard(id, 0, 0, 0);
    const Place place = place_of(graph_, node);
    for (const int64_t i : holdings_.of(graph_.mesh, sub_axes, place))
      add_shard(id, sub_axes, i, moved_to(*graph_.mesh, place, representative(*graph_.mesh, sub_axes, i)));
  }

  void add_shard(NodeId id, SubAxisSet sub_axes, int64_t shard, int64_t position) {
    const Node& node = graph_.nodes[id];
    // Several shards of the instruction give the same result where the result lacks a sub-axis: the first one fills the
    // slot.
    std::vector<uint32_t> results;
    bool any_new = node.call->outputs.empty();
    for (size_t r = 0; r < node.call->outputs.size(); ++r) {
      const uint32_t slot = slot_at(node.output + static_cast<ValueId>(r), position);
      results.push_back(filled_[slot] ? kNone : slot);
      any_new |= !filled_[slot];
      filled_[slot] = true;
    }
    if (!any_new) return;
    const CallRef local = sub_axes ? local_call(node, position) : node.call;
    Instruction instruction = start(id, choose_kind(node, *local));
    instruction.index = instruction.kind == InstructionKind::kernel ? kernel_for(local) : add_fills(node, *local);
    instruction.num_operands =
        instruction.kind == InstructionKind::kernel ? static_cast<uint32_t>(node.inputs.size()) : 0;
    instruction.num_results = static_cast<uint32_t>(results.size());
    instruction.first_param = node.param;
    instruction.num_params = local->num_params;
    instruction.sub_axes = sub_axes;
    instruction.shard = static_cast<uint32_t>(shard);
    for (uint32_t i = 0; i < instruction.num_operands; ++i)
      program_.operands.push_back({slot_at(node.inputs[i], position)});
    program_.results.insert(program_.results.end(), results.begin(), results.end());
    program_.instructions.push_back(instruction);
  }

  // A kernel may refuse parts that it would take as a whole, and is not called for results without elements. Nor is it
  // called with a shard that sharding made empty, unless for a result that is whole on every device: that one depends
  // on no row of it (as the total weight of a loss without reduction).
  InstructionKind choose_kind(const Node& node, const Call& local) const {
    const bool nothing = !local.outputs.empty() && std::all_of(local.outputs.begin(), local.outputs.end(), is_empty);
    if (nothing && is_cut(local, *node.call)) return InstructionKind::fill;
    for (size_t r = 0; r < local.outputs.size(); ++r)
      if (must_compute(node.output + r, local.outputs[r])) return InstructionKind::kernel;
    for (size_t i = 0; i < local.inputs.size(); ++i)
      if (emptied_by_sharding(local.inputs[i], node.call->inputs[i])) return InstructionKind::fill;
    return InstructionKind::kernel;
  }

  // Whether a result must be computed: it is read, has elements here, and is no term of a sum.
  bool must_compute(ValueId value, const TensorType& local) const {
    const ShardingRef sharding = graph_.values[value].sharding;
    const bool partial = sharding && sharding->reduction != Reduction::none;
    return is_read_[value] && !partial && local.dtype != DType::unknown && numel(local.shape) != 0;
  }

  uint32_t add_fills(const Node& node, const Call& local) {
    const auto first = static_cast<uint32_t>(program_.fills.size());
    for (size_t r = 0; r < local.outputs.size(); ++r) {
      const ShardingRef sharding = graph_.values[node.output + r].sharding;
      const Reduction reduction = sharding ? sharding->reduction : Reduction::none;
      const TensorType& type = local.outputs[r];
      program_.fills.push_back(is_read_[node.output + r] ? Fill{type.dtype, type.shape, reduction} : Fill{});
    }
    return first;
  }

  CallRef local_call(const Node& node, int64_t position) const {
    Call local = *node.call;
    std::vector<Box> inputs, outputs;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      inputs.push_back(box_of(graph_.values[node.inputs[i]], position));
      localise_type(local.inputs[i], inputs.back());
    }
    for (size_t r = 0; r < local.outputs.size(); ++r) {
      outputs.push_back(box_of(graph_.values[node.output + r], position));
      localise_type(local.outputs[r], outputs.back());
    }
    const OpRuleRef rule = rule_for(node.call);
    if (rule->localise) rule->localise(*node.call, inputs, outputs, local.args);
    return seal(std::move(local));
  }

  static void localise_type(TensorType& type, const Box& box) {
    for (size_t d = 0; d < box.size(); ++d) type.shape[d] = box[d].extent;
  }

  uint32_t kernel_for(const CallRef& call) {
    auto& same_hash = kernels_[call->hash];
    for (const auto& [known, index] : same_hash)
      if (known == call || *known == *call) return index;
    const auto index = static_cast<uint32_t>(program_.kernels.size());
    program_.kernels.push_back(backend_.prepare(*call));
    program_.calls.push_back(call);
    same_hash.emplace_back(call, index);
    return index;
  }

  const Graph& graph_;
  Backend& backend_;
  Processes processes_;
  Holdings holdings_;
  Program program_;
  std::map<RouteKey, uint32_t> routes_;
  std::vector<bool> filled_;
  std::vector<bool> is_read_;  // by value
  std::unordered_map<uint64_t, std::vector<std::pair<CallRef, uint32_t>>> kernels_;
};

}  // namespace

Program prepare(const Graph& graph, Backend& backend, const Processes& processes) {
  Program program = Preparer(graph, backend, processes).run();
  mark_last_uses(program, graph);
  return program;
}

}  // namespace spmdx
