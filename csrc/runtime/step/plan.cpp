// SPDX-License-Identifier: Apache-2.0
// Plans: compiled, and counted.
#include "runtime/step/plan.h"

#include "passes/passes.h"
#include "rules/lookup.h"

namespace spmdx {
namespace {

// Bytes one device receives so that this op sees its operands whole.
int64_t gathered_bytes(const Graph& graph, const Node& node) {
  int64_t bytes = 0;
  for (ValueId input : node.inputs) {
    if (input == kNone || graph.value(input).producer == kNone) continue;
    const Node& producer = graph.nodes[graph.value(input).producer];
    if (moves_bytes(producer)) bytes += producer.bytes;
  }
  return bytes;
}

void count_work(Plan& plan) {
  const Graph& graph = plan.executable->graph();
  for (const Node& node : graph.nodes) {
    if (moves_bytes(node)) {
      plan.collectives += 1;
      plan.wire_bytes += node.bytes;
    } else if (graph.mesh && !is_collective(node) && !node.inputs.empty() && rule_for(node.call)->fallback) {
      plan.fallbacks.push_back({node.call->op, gathered_bytes(graph, node), node.source});
    }
  }
}

// Equal in processes that run the same program with the same options.
uint64_t fingerprint_of(const Plan& plan) {
  return std::hash<std::string>{}(print(plan.traced) + print(plan.executable->graph()));
}

}  // namespace

bool moves_bytes(const Node& node) { return is_collective(node) && traits_of(collective_kind(node)).crossings > 0; }

void set_shardings(const Plan& plan, const std::vector<DataRef>& outputs) {
  const Graph& graph = plan.executable->graph();
  for (size_t i = 0; i < outputs.size(); ++i) outputs[i]->set_sharding(graph.values[graph.outputs[i].value].sharding);
}

std::shared_ptr<Plan> make_plan(const Graph& graph, const CompileOptions& options, Backend& backend,
                                CollectiveQueue& collective_queue, bool compared) {
  auto plan = std::make_shared<Plan>();
  plan->traced = graph;
  Graph compiled = graph;
  compile(compiled, options);
  plan->executable = std::make_unique<Executable>(std::move(compiled), backend, collective_queue);
  count_work(*plan);
  if (compared) plan->fingerprint = fingerprint_of(*plan);
  return plan;
}

}  // namespace spmdx
