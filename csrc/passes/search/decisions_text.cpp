// SPDX-License-Identifier: Apache-2.0
// The decisions are assigned again, so that each node's candidates can be asked what they would cost now.
#include "passes/search/decisions_text.h"

#include <cstdlib>

#include "graph/text.h"
#include "passes/search/assignment.h"
#include "sharding/notation.h"

namespace spmdx {
namespace {

Assignment assigned(const Graph& graph, const Decisions& decisions, const CompileOptions& options) {
  Assignment assignment(graph, options, decisions.transient);
  for (NodeId node = 0; node < graph.nodes.size(); ++node) assignment.decide(node, decisions.choices[node]);
  assignment.forget();
  return assignment;
}

bool same_layouts(const Choice& a, const Choice& b) {
  return a.placement.inputs == b.placement.inputs && a.placement.outputs == b.placement.outputs;
}

// The cheapest other candidate; null where there is none.
ChoiceRef runner_up(Assignment& assignment, NodeId node) {
  ChoiceRef best;
  int64_t least = 0;
  for (const ChoiceRef& choice : assignment.choices(node)) {
    if (same_layouts(*choice, assignment.choice(node))) continue;
    const int64_t cost = assignment.cost_around(node, *choice);
    if (best && cost >= least) continue;
    best = choice;
    least = cost;
  }
  return best;
}

std::string list_text(const std::vector<TensorType>& types, const std::vector<ShardingRef>& shardings) {
  std::string out;
  for (size_t i = 0; i < types.size(); ++i) out += (i ? ", " : "") + str(types[i], shardings[i]);
  return out;
}

// "f32[8, 4]{partial sum: a} = aten.mm(f32[8, 2@a], f32[2@a, 4])  work_ns 6 moves_ns 5114"
std::string choice_text(const Assignment& assignment, NodeId node, const Choice& choice) {
  const Call& call = *assignment.graph().nodes[node].call;
  const int64_t work_ns = assignment.times(node) * choice.time.weighted_ns;
  return list_text(call.outputs, choice.placement.outputs) + " = " + call.op + "(" +
         list_text(call.inputs, choice.placement.inputs) + ")  work_ns " + std::to_string(work_ns) + " moves_ns " +
         std::to_string(assignment.cost_around(node, choice) - work_ns);
}

std::string reader_text(const Graph& graph, NodeId reader) {
  if (reader == kNone) return ", as annotated";
  return reader == graph.nodes.size() ? ", kept after the step" : " for %" + std::to_string(graph.nodes[reader].output);
}

// "%1 f32[16@a, 4] as f32[16, 4] for %2: all_gather over a  bytes 128 cost_ns 5114"
std::string way_text(const Graph& graph, const Assignment::Way& way) {
  const TensorType& type = graph.values[way.value].type;
  std::string moves;
  for (const Move& move : way.plan->moves) {
    moves += (moves.empty() ? ": " : ", ") + std::string(name(move.kind));
    std::string axes;
    for (const std::string& axis : axis_names(*graph.mesh, sub_axis_list(move.sub_axes)))
      axes += (axes.empty() ? " over " : ",") + axis;
    moves += axes;
  }
  return "%" + std::to_string(way.value) + " " + str(type, way.from) + " as " + str(type, way.to) +
         reader_text(graph, way.reader) + moves + "  bytes " + std::to_string(way.plan->bytes) + " cost_ns " +
         std::to_string(way.plan->cost_ns);
}

std::string ways_text(const Assignment& assignment, NodeId node, const Choice& choice, const std::string& indent) {
  std::string out;
  for (const Assignment::Way& way : assignment.ways_around(node, choice))
    if (way.plan->cost_ns > 0) out += indent + way_text(assignment.graph(), way) + "\n";
  return out;
}

std::string runner_up_text(Assignment& assignment, NodeId node) {
  const ChoiceRef other = runner_up(assignment, node);
  if (!other) return "  no runner-up\n";
  const int64_t more = assignment.cost_around(node, *other) - assignment.cost_around(node, assignment.choice(node));
  return "  runner-up, " + std::to_string(std::abs(more)) + (more < 0 ? " ns less: " : " ns more: ") +
         choice_text(assignment, node, *other) + "\n" + ways_text(assignment, node, *other, "    ");
}

std::string line_text(SourceId id, const SourcePrinter& source) {
  const std::string line = id && source ? source(id) : "";
  return line.empty() ? line : "  // " + line;
}

}  // namespace

std::string decisions_text(const Graph& graph, const Decisions& decisions, const CompileOptions& options) {
  Assignment assignment = assigned(graph, decisions, options);
  std::string out;
  for (NodeId node = 0; node < graph.nodes.size(); ++node) {
    const Choice& choice = assignment.choice(node);
    out += "%" + std::to_string(graph.nodes[node].output) + " : " + choice_text(assignment, node, choice) +
           line_text(graph.nodes[node].source, options.source) + "\n" + ways_text(assignment, node, choice, "  ") +
           runner_up_text(assignment, node);
  }
  return out + "work_ns " + std::to_string(assignment.total() - assignment.moving()) + " moves_ns " +
         std::to_string(assignment.moving()) + "\n";
}

}  // namespace spmdx
