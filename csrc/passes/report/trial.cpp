// SPDX-License-Identifier: Apache-2.0
// Trials: strategies by enumeration, and the program of each.
#include "passes/report/trial.h"

#include "passes/lower_permutes.h"
#include "passes/rewrites/expand.h"
#include "passes/strategy/choices.h"
#include "rules/build/letters.h"
#include "rules/lookup.h"

namespace spmdx {
namespace {

// A strategy that uses at most this axis.
using OneAxis = std::vector<Strategy>;

Strategy uncut(const OpContext& op) {
  Strategy strategy;
  strategy.cuts.resize(op.rule->factors.size());
  return strategy;
}

// `any` and `all` are of truth values, and complex numbers have no order.
bool makes_sense(const OpContext& op, const Deferral& deferral) {
  for (size_t i = 0; i < op.rule->inputs.size(); ++i) {
    if (i < 64 && !(deferral.partial_operands >> i & 1)) continue;
    const DType dtype = op.type(i).dtype;
    const bool logical = deferral.reduction == Reduction::any || deferral.reduction == Reduction::all;
    const bool ordering = deferral.reduction == Reduction::max || deferral.reduction == Reduction::min;
    if (op.type(i).wrapped_number) return false;  // a number has no parts
    if ((logical && dtype != DType::b8) || (ordering && is_complex(dtype))) return false;
  }
  return true;
}

OneAxis along(const OpContext& op, int axis) {
  const SubAxisList sub_axes = op.mesh->sub_axes_of_axis(axis);
  OneAxis result{uncut(op)};
  for (size_t f = 0; f < op.rule->factors.size(); ++f) {
    if (!may_cut(op, op.rule->factors[f])) continue;
    Strategy strategy = uncut(op);
    strategy.cuts[f] = {sub_axes, 1};
    result.push_back(std::move(strategy));
  }
  for (const Deferral& deferral : all_deferrals(op, sub_axis_set(sub_axes))) {
    if (!makes_sense(op, deferral)) continue;
    Strategy strategy = uncut(op);
    strategy.partial = deferral.sub_axes;
    strategy.reduction = deferral.reduction;
    strategy.partial_operands = deferral.partial_operands;
    result.push_back(std::move(strategy));
  }
  return result;
}

// Both strategies in one; nothing where each of them leaves something partial.
std::optional<Strategy> joined(const Strategy& a, const Strategy& b) {
  if (a.partial && b.partial) return std::nullopt;
  Strategy result = a.partial ? a : b;
  for (size_t f = 0; f < a.cuts.size(); ++f) {
    result.cuts[f] = a.cuts[f].empty() ? b.cuts[f] : a.cuts[f];
    if (a.cuts[f].empty() || b.cuts[f].empty()) continue;
    result.cuts[f].sub_axes.append(b.cuts[f].sub_axes);
  }
  return result;
}

std::vector<Strategy> strategies(const OpContext& op) {
  std::vector<Strategy> result{uncut(op)};
  for (int axis = 0; axis < static_cast<int>(op.mesh->axes().size()); ++axis) {
    const OneAxis more = along(op, axis);
    std::vector<Strategy> longer;
    for (const Strategy& base : result)
      for (const Strategy& extra : more)
        if (auto both = joined(base, extra)) longer.push_back(std::move(*both));
    result = std::move(longer);
  }
  std::erase_if(result, [](const Strategy& strategy) { return strategy.used() == 0; });
  return result;
}

// A trial's results may be partial, a program's may not.
void verify_inside(Graph graph) {
  graph.outputs.clear();
  verify(graph);
}

}  // namespace

Graph laid_out(const CallRef& call, const MeshRef& mesh, const Placement& placement) {
  Graph graph;
  graph.mesh = mesh;
  std::vector<ValueId> operands;
  for (size_t i = 0; i < call->inputs.size(); ++i) {
    operands.push_back(graph.add_input(call->inputs[i]));
    graph.inputs.back().physical = placement.inputs[i];
    graph.values[operands.back()].sharding = placement.inputs[i];
  }
  const ValueId first = graph.add_node(call, operands);
  graph.num_params = call->num_params;
  for (size_t r = 0; r < call->outputs.size(); ++r) {
    graph.values[first + r].sharding = placement.outputs[r];
    if (rules::produced(call->outputs[r])) graph.outputs.push_back({.value = first + static_cast<ValueId>(r)});
  }
  return graph;
}

std::vector<Graph> trials(const CallRef& call, const MeshRef& mesh, const CompileOptions& options) {
  const OpRuleRef rule = rule_for(call);
  const OpContext op{mesh, call.get(), rule.get(), true};
  std::vector<Graph> result;
  for (const Strategy& strategy : strategies(op)) {
    const auto placement = place(op, strategy);
    if (!placement) continue;
    Graph trial = laid_out(call, mesh, *placement);
    if (cuts_composite(op, strategy)) {
      expand(trial, {true});
      trial = compile(trial, options);
    } else {
      lower_permutes(trial);
      verify_inside(trial);
    }
    result.push_back(std::move(trial));
  }
  return result;
}

}  // namespace spmdx
