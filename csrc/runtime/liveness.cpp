// SPDX-License-Identifier: Apache-2.0
// Liveness: where a slot is read for the last time, which buffer a result may take over, what a device holds at most.
#include <algorithm>

#include "runtime/program.h"

namespace spmdx {
namespace {

int64_t local_bytes(const Value& value) {
  const int64_t elements =
      value.sharding ? max_local_numel(*value.sharding, value.type.shape) : numel(value.type.shape);
  return elements * itemsize(value.type.dtype);
}

// The first operand that dies here and has the type of the only result.
int donation_candidate(const Program& program, const Work& work, const Graph& graph) {
  const Node& node = graph.nodes[work.node];
  if (work.kind != WorkKind::kernel || node.call->outputs.size() != 1) return -1;
  const Value& result = graph.values[node.output];
  for (uint32_t i = 0; i < work.num_operands; ++i) {
    const Value& operand = graph.values[node.inputs[i]];
    if (program.operands[work.first_operand + i].last && operand.type.dtype == result.type.dtype &&
        operand.type.shape == result.type.shape && operand.sharding == result.sharding)
      return static_cast<int>(i);
  }
  return -1;
}

}  // namespace

void mark_last_uses(Program& program, const Graph& graph) {
  std::vector<bool> read_later(program.total_slots, false);
  for (const Output& output : graph.outputs)
    for (uint32_t s = 0; s < program.num_slots[output.value]; ++s)
      read_later[program.first_slot[output.value] + s] = true;
  for (auto work = program.works.rbegin(); work != program.works.rend(); ++work) {
    for (uint32_t r = 0; r < work->num_results; ++r) {
      uint32_t& slot = program.results[work->first_result + r];
      if (slot != kNone && !read_later[slot]) slot = kNone;
    }
    for (uint32_t i = work->num_operands; i-- > 0;) {
      Operand& operand = program.operands[work->first_operand + i];
      operand.last = !read_later[operand.slot];
      read_later[operand.slot] = true;
    }
    work->donated = donation_candidate(program, *work, graph);
  }
}

int64_t predict_peak_bytes(const Graph& graph) {
  const auto never = static_cast<NodeId>(graph.nodes.size());
  std::vector<NodeId> last_use(graph.values.size(), 0);
  int64_t live = 0;
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    const Node& node = graph.nodes[id];
    for (size_t r = 0; r < node.call->outputs.size(); ++r) last_use[node.output + r] = id;
    for (ValueId input : node.inputs) last_use[input] = id;
  }
  for (const Output& output : graph.outputs) last_use[output.value] = never;
  for (const Input& input : graph.inputs) {
    last_use[input.value] = never;
    live += local_bytes(graph.values[input.value]);
  }
  int64_t peak = live;
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    const Node& node = graph.nodes[id];
    std::vector<ValueId> touched = node.inputs;
    for (size_t r = 0; r < node.call->outputs.size(); ++r) {
      touched.push_back(node.output + static_cast<ValueId>(r));
      live += local_bytes(graph.values[touched.back()]);
    }
    peak = std::max(peak, live);
    std::sort(touched.begin(), touched.end());
    touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
    for (ValueId value : touched)
      if (last_use[value] == id) live -= local_bytes(graph.values[value]);
  }
  return peak;
}

}  // namespace spmdx
