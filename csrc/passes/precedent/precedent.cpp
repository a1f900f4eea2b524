// SPDX-License-Identifier: Apache-2.0
// Precedent: programs are compared without sizes; strategies by the factors of rules, which have none.
#include "passes/precedent/precedent.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <unordered_map>

#include "rules/lookup.h"
#include "rules/override.h"
#include "rules/registered.h"

namespace spmdx {
namespace {

uint64_t hash_text(uint64_t h, std::string_view text) { return hash_combine(h, std::hash<std::string_view>{}(text)); }

// How a dim is cut decides what it can be merged with: evenly, unevenly, or into fewer parts than there are devices.
uint64_t evenness(const Mesh& mesh, const DimSharding& dim, int64_t size) {
  const int64_t parts = mesh.group_size(sub_axis_set(dim.sub_axes));
  return size % parts == 0 ? 0 : size < parts ? 1 : 2;
}

// Content, not pointers: equal in every process. Tiles are sizes.
uint64_t hash_cuts(uint64_t h, const ShardingRef& sharding, const Shape& shape) {
  if (!sharding) return hash_combine(h, 0);
  h = hash_combine(hash_combine(h, sharding->mesh->hash()), sharding->partial);
  h = hash_combine(h, static_cast<uint64_t>(sharding->reduction));
  for (size_t d = 0; d < sharding->dims.size(); ++d) {
    const DimSharding& dim = sharding->dims[d];
    h = hash_combine(h, dim.sub_axes.size());
    for (const SubAxisId sub_axis : dim.sub_axes) h = hash_combine(h, sub_axis);
    if (!dim.empty()) h = hash_combine(h, evenness(*sharding->mesh, dim, shape[d]));
  }
  return sharding->place.plain() ? h : hash_combine(h, hash(sharding->place));
}

// No element, one, or many: which of these decides what an op does with a dim.
uint64_t hash_type(uint64_t h, const TensorType& type) {
  h = hash_combine(h, static_cast<uint64_t>(type.dtype));
  for (const int64_t size : type.shape) h = hash_combine(h, static_cast<uint64_t>(std::min<int64_t>(size, 2)));
  return hash_combine(h, type.shape.size());
}

uint64_t hash_ends(uint64_t h, const Graph& graph) {
  const auto add = [&](ValueId value, const ShardingRef& sharding) {
    h = hash_cuts(hash_combine(h, value), sharding, graph.values[value].type.shape);
  };
  for (const Input& input : graph.inputs) {
    add(input.value, input.physical);
    add(input.value, input.annotation);
    h = hash_combine(hash_type(h, graph.values[input.value].type), input.state);
  }
  for (const Output& output : graph.outputs) {
    add(output.value, output.annotation);
    h = hash_combine(h, uint64_t{output.tied} * 4 + output.donates * 2 + output.state);
  }
  for (const Constraint& constraint : graph.constraints) {
    add(constraint.value, constraint.sharding);
    h = hash_combine(h, constraint.state);
  }
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

// All of a rule that a strategy refers to; of users' own ones what they cost as well, since nothing else tells it.
uint64_t hash_rule(uint64_t h, const Call& call, const OpRule& rule) {
  if (rules::find_override(call.op) || rules::find_registered(call.op))
    h = hash_combine(h, std::bit_cast<uint64_t>(rule.flops_per_element));
  for (const Factor& factor : rule.factors)
    h = hash_combine(
        h, static_cast<uint64_t>(factor.kind) * 16 + static_cast<uint64_t>(factor.reduction) * 2 + factor.loose);
  h = hash_factors(hash_factors(h, rule.inputs), rule.outputs);
  return hash_combine(hash_combine(h, rule.linear_inputs), static_cast<uint64_t>(rule.linearity));
}

// Of a graph on its way to a plan, in which ops may have been replaced.
uint64_t likeness_of_searched(const Graph& graph) {
  uint64_t h = hash_combine(hash_combine(graph.mesh->hash(), graph.values.size()), wiring_hash(graph));
  for (const Node& node : graph.nodes) h = hash_rule(h, *node.call, *rule_for(node.call));
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
    const std::vector<Factor>& factors = rule_for(graph.nodes[node].call)->factors;
    if (strategy.cuts.size() != factors.size() || strategy.partial & ~all) return false;
    for (size_t f = 0; f < factors.size(); ++f) {
      if (strategy.cuts[f].tile > std::max<int64_t>(1, factors[f].size)) return false;
      for (const SubAxisId sub_axis : strategy.cuts[f].sub_axes)
        if (sub_axis >= graph.mesh->sub_axes().size()) return false;
    }
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
  uint64_t h = hash_combine(traced.mesh ? traced.mesh->hash() : 0, wiring_hash(traced));
  h = hash_combine(hash_combine(h, traced.values.size()), traced.num_params);
  return hash_text(hash_text(hash_ends(h, traced), traced.schedule), traced.kinds);
}

void note_strategies(Precedent& precedent, const Graph& searched, const std::vector<const Strategy*>& strategies) {
  precedent.likeness = likeness_of_searched(searched);
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
