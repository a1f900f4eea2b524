// SPDX-License-Identifier: Apache-2.0
// Regather policy: parameters by what gathering them again costs, and what fits in the budget.
#include "passes/search/regather.h"

#include <algorithm>

#include "rules/lookup.h"
#include "rules/rule/row.h"

namespace spmdx {
namespace {

// A parameter with its views and casts: all of them are kept or none. If they are kept, the parameter is gathered once,
// and the others are made of that copy.
struct Family {
  std::vector<ValueId> values;
  int64_t moves_ns = 0;
  int64_t once_ns = 0;
  int64_t bytes = 0;  // of the largest copy
  int64_t saved_ns() const { return moves_ns - once_ns; }
};

// The input that a transient value is made of.
ValueId origin(const Graph& graph, ValueId value) {
  while (graph.values[value].producer != kNone) value = graph.nodes[graph.values[value].producer].inputs[0];
  return value;
}

std::vector<Family> families(const Assignment& assignment, const std::vector<bool>& transient) {
  const Graph& graph = assignment.graph();
  std::vector<Family> by_origin(graph.values.size());
  for (ValueId value = 0; value < transient.size(); ++value) {
    if (!transient[value]) continue;
    Family& family = by_origin[origin(graph, value)];
    family.values.push_back(value);
    family.moves_ns += assignment.moves_ns(value);
    family.once_ns = std::max(family.once_ns, assignment.moves_ns_if_kept(value));
    family.bytes = std::max(family.bytes, graph.values[value].type.bytes());
  }
  std::erase_if(by_origin, [](const Family& family) { return family.saved_ns() == 0; });
  return by_origin;
}

}  // namespace

std::vector<bool> transient_values(const Graph& graph) {
  std::vector<bool> derived(graph.values.size(), false);
  for (const Input& input : graph.inputs) derived[input.value] = input.state;
  for (const Node& node : graph.nodes) {
    if (node.inputs.size() != 1 || !derived[node.inputs[0]]) continue;
    if (rule_for(node.call)->linearity == Linearity::movement || rules::form_of(*node.call) == rules::Form::cast)
      derived[node.output] = true;
  }
  return derived;
}

void keep_within(int64_t budget, const Assignment& assignment, std::vector<bool>& transient) {
  std::vector<Family> all = families(assignment, transient);
  std::stable_sort(all.begin(), all.end(), [](const Family& a, const Family& b) {
    return static_cast<double>(a.saved_ns()) * static_cast<double>(b.bytes) >
           static_cast<double>(b.saved_ns()) * static_cast<double>(a.bytes);
  });
  for (const Family& family : all) {
    if (family.bytes > budget) continue;
    budget -= family.bytes;
    for (ValueId value : family.values) transient[value] = false;
  }
}

}  // namespace spmdx
