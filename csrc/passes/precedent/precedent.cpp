// SPDX-License-Identifier: Apache-2.0
// Precedent: programs are compared without sizes; strategies by the factors of rules, which have none.
#include "passes/precedent/precedent.h"

#include <algorithm>
#include <functional>
#include <unordered_map>

#include "rules/lookup.h"

namespace spmdx {
namespace {

uint64_t hash_text(uint64_t h, std::string_view text) { return hash_combine(h, std::hash<std::string_view>{}(text)); }

// Content, not pointers: equal in every process. Tiles are sizes.
uint64_t hash_cuts(uint64_t h, const ShardingRef& sharding) {
  if (!sharding) return hash_combine(h, 0);
  h = hash_combine(hash_combine(h, sharding->mesh->hash()), sharding->partial);
  h = hash_combine(h, static_cast<uint64_t>(sharding->reduction));
  for (const DimSharding& dim : sharding->dims) {
    h = hash_combine(h, dim.sub_axes.size());
    for (const SubAxisId sub_axis : dim.sub_axes) h = hash_combine(h, sub_axis);
  }
  return sharding->place.plain() ? h : hash_combine(h, hash(sharding->place));
}

// No element, one, or many: which of these decides what an op does with a dim.
uint64_t hash_type(uint64_t h, const TensorType& type) {
  h = hash_combine(h, static_cast<uint64_t>(type.dtype));
  for (const int64_t size : type.shape) h = hash_combine(h, static_cast<uint64_t>(std::min<int64_t>(size, 2)));
  return hash_combine(h, type.shape.size());
}

uint64_t hash_wiring(uint64_t h, const Node& node) {
  h = hash_text(h, node.call->op);
  for (const ValueId input : node.inputs) h = hash_combine(h, input);
  return hash_combine(hash_combine(h, node.output), node.call->num_params);
}

uint64_t hash_ends(uint64_t h, const Graph& graph) {
  for (const Input& input : graph.inputs) {
    h = hash_type(hash_combine(h, input.value), graph.values[input.value].type);
    h = hash_combine(hash_cuts(hash_cuts(h, input.physical), input.annotation), input.state);
  }
  for (const Output& output : graph.outputs) {
    h = hash_cuts(hash_combine(h, output.value), output.annotation);
    h = hash_combine(h, uint64_t{output.tied} * 4 + output.donates * 2 + output.state);
  }
  for (const Constraint& constraint : graph.constraints)
    h = hash_combine(hash_cuts(hash_combine(h, constraint.value), constraint.sharding), constraint.state);
  return h;
}

uint64_t hash_factors(uint64_t h, const std::vector<TensorFactors>& tensors) {
  for (const TensorFactors& dims : tensors)
    for (const std::vector<int>& factors : dims) {
      h = hash_combine(h, factors.size());
      for (const int factor : factors) h = hash_combine(h, static_cast<uint64_t>(factor));
    }
  return hash_combine(h, tensors.size());
}

// All of a rule that a strategy refers to.
uint64_t hash_rule(uint64_t h, const OpRule& rule) {
  for (const Factor& factor : rule.factors)
    h = hash_combine(
        h, static_cast<uint64_t>(factor.kind) * 16 + static_cast<uint64_t>(factor.reduction) * 2 + factor.loose);
  h = hash_factors(hash_factors(h, rule.inputs), rule.outputs);
  return hash_combine(hash_combine(h, rule.linear_inputs), static_cast<uint64_t>(rule.linearity));
}

// Of a graph on its way to a plan, in which ops may have been replaced.
uint64_t likeness_of_searched(const Graph& graph) {
  uint64_t h = hash_combine(graph.mesh->hash(), graph.values.size());
  for (const Node& node : graph.nodes) h = hash_rule(hash_wiring(h, node), *rule_for(node.call));
  for (const Output& output : graph.outputs) h = hash_combine(h, output.value);
  return h;
}

// Whether the strategies name factors and sub-axes that there are: a precedent may come from a file.
bool refers_to(const Precedent& precedent, const Graph& graph) {
  const SubAxisSet all = graph.mesh->all_sub_axes();
  if (precedent.of_nodes.size() != graph.nodes.size() || precedent.transient.size() != graph.values.size())
    return false;
  for (NodeId node = 0; node < graph.nodes.size(); ++node) {
    if (precedent.of_nodes[node] >= precedent.strategies.size()) return false;
    const Strategy& strategy = precedent.strategies[precedent.of_nodes[node]];
    if (strategy.cuts.size() != rule_for(graph.nodes[node].call)->factors.size()) return false;
    if (strategy.partial & ~all) return false;
    for (const DimSharding& cut : strategy.cuts)
      for (const SubAxisId sub_axis : cut.sub_axes)
        if (sub_axis >= graph.mesh->sub_axes().size()) return false;
  }
  return true;
}

// Its place in a table of strategies, each once.
uint32_t number_of(const Strategy& strategy, std::vector<Strategy>& table,
                   std::unordered_multimap<uint64_t, uint32_t>& known) {
  const uint64_t h = hash(strategy);
  const auto [begin, end] = known.equal_range(h);
  for (auto at = begin; at != end; ++at)
    if (table[at->second] == strategy) return at->second;
  const auto number = static_cast<uint32_t>(table.size());
  known.emplace(h, number);
  table.push_back(strategy);
  return number;
}

}  // namespace

uint64_t likeness_of(const Graph& traced) {
  uint64_t h = hash_combine(traced.mesh ? traced.mesh->hash() : 0, traced.num_params);
  h = hash_text(hash_text(hash_ends(h, traced), traced.schedule), traced.kinds);
  for (const Node& node : traced.nodes) h = hash_wiring(h, node);
  return h;
}

void note_strategies(Precedent& precedent, const Graph& searched, const std::vector<const Strategy*>& strategies) {
  precedent.likeness = likeness_of_searched(searched);
  precedent.equality = structural_hash(searched);
  precedent.strategies.clear();
  precedent.of_nodes.clear();
  std::unordered_multimap<uint64_t, uint32_t> known;
  for (const Strategy* strategy : strategies)
    precedent.of_nodes.push_back(number_of(*strategy, precedent.strategies, known));
}

bool is_like(const Precedent& precedent, const Graph& graph) {
  return precedent.likeness == likeness_of_searched(graph) && refers_to(precedent, graph);
}

}  // namespace spmdx
