// SPDX-License-Identifier: Apache-2.0
// Plans: compiled, and counted.
#include "runtime/step/plan.h"

#include "graph/parts.h"
#include "passes/free_starts.h"
#include "passes/passes.h"
#include "passes/places/actions.h"
#include "rules/lookup.h"
#include "rules/rule/row.h"

namespace spmdx {
namespace {

// Of a plan that is brief: bytes that its ops read and write, of all devices together, and what a call of a kernel
// costs in such bytes.
constexpr int64_t kBriefCost = 4'194'304;
constexpr int64_t kCostOfCall = 4096;

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

// Whether the thread that waits for a run may as well do it: the run is over before Ctrl-C would be missed. Kernels of
// ops that are not in our table, as users' own ops, may take any time, and call Python.
bool is_brief(const Graph& graph) {
  const int64_t devices = graph.mesh ? static_cast<int64_t>(graph.mesh->size()) : 1;
  int64_t cost = 0;
  for (const Node& node : graph.nodes) {
    const rules::Row* row = rules::find_row(node.call->op);
    if (!is_collective(node) && (!row || row->registered)) return false;
    cost += devices * kCostOfCall + touched_bytes(*node.call);
    if (cost > kBriefCost) return false;
  }
  return true;
}

// Of a step with stages whose backward passes are one: the others wait for the stage that works.
int64_t count_idle_stages(const Graph& graph) {
  const Actions actions = actions_of(graph);
  return actions.backward && actions.microbatches == 1 ? actions.ranks - 1 : 0;
}

// Equal in processes that run the same program with the same options.
uint64_t fingerprint_of(const Plan& plan) {
  return hash_combine(structural_hash(plan.traced), std::hash<std::string>{}(print(plan.executable->graph())));
}

}  // namespace

bool moves_bytes(const Node& node) { return is_collective(node) && traits_of(collective_kind(node)).crossings > 0; }

void set_shardings(const Plan& plan, const std::vector<DataRef>& outputs) {
  const Graph& graph = plan.executable->graph();
  for (size_t i = 0; i < outputs.size(); ++i) outputs[i]->set_sharding(graph.values[graph.outputs[i].value].sharding);
}

std::shared_ptr<Plan> make_plan(const Graph& graph, const CompileOptions& options, Backend& backend,
                                CollectiveQueue& collective_queue, bool compared, const Precedent* like) {
  auto plan = std::make_shared<Plan>();
  plan->traced = graph;
  Compiled compiled = compile(graph, options, like);
  plan->placed = std::move(compiled.placed);
  plan->precedent = std::move(compiled.precedent);
  plan->follows = compiled.follows;
  plan->provisional = compiled.provisional;
  plan->starts = free_starts(plan->traced, compiled.graph);
  plan->executable = std::make_unique<Executable>(std::move(compiled.graph), backend, collective_queue);
  count_work(*plan);
  plan->idle_stages = count_idle_stages(plan->executable->graph());
  plan->brief = is_brief(plan->executable->graph());
  if (compared) plan->fingerprint = fingerprint_of(*plan);
  return plan;
}

}  // namespace spmdx
