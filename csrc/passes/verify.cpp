// SPDX-License-Identifier: Apache-2.0
// Verify: an independent check that every node can run on what its operands' shards really hold.
#include <algorithm>
#include <map>
#include <optional>

#include "base/error.h"
#include "passes/passes.h"
#include "sharding/reshard_direct.h"

namespace spmdx {
namespace {

constexpr int64_t kPositions = 64;  // of the mesh that are looked at
constexpr int64_t kBoxes = 256;     // of a collective that are looked at

[[noreturn]] void reject(const Graph& graph, const Node& node, const std::string& why) {
  throw InternalError("verify: " + why + " in " + print(node, graph));
}

const TensorFactors& factors_of(const OpRule& rule, size_t tensor) {
  return tensor < rule.inputs.size() ? rule.inputs[tensor] : rule.outputs[tensor - rule.inputs.size()];
}

ValueId value_of(const Node& node, size_t tensor) {
  return tensor < node.inputs.size() ? node.inputs[tensor]
                                     : node.output + static_cast<ValueId>(tensor - node.inputs.size());
}

// What a device holds of each factor, read off every dim that is made of that factor alone; all must agree.
void check_ranges(const Graph& graph, const Node& node, const OpRule& rule, int64_t position) {
  std::vector<std::optional<Range>> range(rule.factors.size());
  const size_t tensors = rule.inputs.size() + rule.outputs.size();
  for (size_t t = 0; t < tensors; ++t) {
    const Value& value = graph.values[value_of(node, t)];
    const Box box = local_box(*value.sharding, value.type.shape, position);
    const TensorFactors& dims = factors_of(rule, t);
    for (size_t d = 0; d < dims.size(); ++d) {
      if (dims[d].size() != 1) continue;
      std::optional<Range>& known = range[dims[d][0]];
      if (known && known->extent == 0 && box[d].extent == 0) continue;
      if (known && *known != box[d]) reject(graph, node, "operands and results hold different parts of a factor");
      known = box[d];
    }
  }
  for (size_t t = 0; t < tensors; ++t) {
    const Value& value = graph.values[value_of(node, t)];
    const Shape local = local_shape(*value.sharding, value.type.shape, position);
    const TensorFactors& dims = factors_of(rule, t);
    for (size_t d = 0; d < dims.size(); ++d) {
      if (dims[d].empty() && local[d] != value.type.shape[d]) reject(graph, node, "a dim without factor is cut");
      int64_t product = 1;
      bool known = dims[d].size() > 1;
      for (int f : dims[d]) {
        known = known && range[f].has_value();
        product *= known ? range[f]->extent : 1;
      }
      if (known && product != local[d]) reject(graph, node, "a merged dim does not hold what its factors hold");
    }
  }
}

AtomSet atoms_on(const Graph& graph, const Node& node, const OpRule& rule, int factor) {
  AtomSet atoms = 0;
  for (size_t t = 0; t < rule.inputs.size(); ++t)
    for (size_t d = 0; d < rule.inputs[t].size(); ++d)
      if (rule.inputs[t][d] == std::vector<int>{factor})
        atoms |= atom_set(graph.values[node.inputs[t]].sharding->dims[d].atoms);
  return atoms;
}

bool contains(const TensorFactors& dims, int factor) {
  return std::any_of(dims.begin(), dims.end(), [factor](const std::vector<int>& dim) {
    return std::find(dim.begin(), dim.end(), factor) != dim.end();
  });
}

void check_partials(const Graph& graph, const Node& node, const OpRule& rule) {
  AtomSet flowing = 0;
  for (size_t t = 0; t < node.inputs.size(); ++t) {
    const AtomSet partial = graph.values[node.inputs[t]].sharding->partial;
    if (!partial) continue;
    const bool takes_part = t >= 64 || (rule.linear_inputs >> t & 1);
    if (rule.linearity == Linearity::none || !takes_part)
      reject(graph, node, "a partial operand meets an op that is not linear in it");
    if (rule.linearity == Linearity::each && flowing) reject(graph, node, "two operands of a product are partial");
    flowing |= partial;
  }
  if (flowing && rule.linearity != Linearity::each)
    for (size_t t = 0; t < node.inputs.size(); ++t)
      if ((t >= 64 || (rule.linear_inputs >> t & 1)) && graph.values[node.inputs[t]].sharding->partial != flowing)
        reject(graph, node, "operands are partial over different axes");
  for (size_t t = 0; t < rule.outputs.size(); ++t) {
    AtomSet expected = flowing;
    for (size_t f = 0; f < rule.factors.size(); ++f)
      if (rule.factors[f].reduction != Reduction::none && !contains(rule.outputs[t], static_cast<int>(f)))
        expected |= atoms_on(graph, node, rule, static_cast<int>(f));
    const AtomSet actual = graph.values[node.output + t].sharding->partial;
    if ((expected & ~actual) != 0) reject(graph, node, "a result that is partial is taken for whole");
    if ((actual & ~expected) != 0) {
      // Factors of merged dims are not read by atoms_on: accept atoms that some operand's dims are cut by.
      AtomSet cut = 0;
      for (ValueId value : node.inputs) cut |= graph.values[value].sharding->dim_atoms();
      if ((actual & ~expected & ~cut) != 0) reject(graph, node, "a whole result is taken for partial");
    }
  }
}

void check_op(const Graph& graph, const Node& node) {
  const OpRuleRef rule = rule_for(node.call);
  if (rule->inputs.size() != node.inputs.size()) reject(graph, node, "the rule has other operands");
  for (size_t f = 0; f < rule->factors.size(); ++f)
    if (rule->factors[f].kind == FactorKind::replicate || rule->factors[f].kind == FactorKind::composite)
      if (atoms_on(graph, node, *rule, static_cast<int>(f))) reject(graph, node, "a factor that must be whole is cut");
  const int64_t positions = std::min(graph.mesh->size(), kPositions);
  for (int64_t i = 0; i < positions; ++i) check_ranges(graph, node, *rule, i * graph.mesh->size() / positions);
  check_partials(graph, node, *rule);
}

// All that a device holds afterwards was on the devices that differ from it along `atoms`.
void check_boxes(const Graph& graph, const Node& node, size_t operand, AtomSet atoms) {
  const Value &before = graph.values[node.inputs[operand]], &after = graph.values[node.output + operand];
  const int64_t size = graph.mesh->size();
  const int64_t positions = std::clamp<int64_t>(kBoxes / graph.mesh->group_size(atoms), 1, size);
  for (int64_t i = 0; i < positions; ++i)
    if (!group_holds(*before.sharding, *after.sharding, before.type.shape, atoms, (i + 1) * size / positions - 1))
      reject(graph, node, "a device needs what no device of its group has");
}

void check_collective(const Graph& graph, const Node& node) {
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const Sharding& from = *graph.values[node.inputs[i]].sharding;
    const Sharding& to = *graph.values[node.output + i].sharding;
    const Collective kind = collective_kind(node);
    const bool reduces = kind == Collective::all_reduce || kind == Collective::reduce_scatter;
    const AtomSet lost = from.partial & ~to.partial;
    if (reduces && (lost == 0 || (lost & ~node.atoms) != 0)) reject(graph, node, "it reduces other axes than it says");
    if (!reduces && lost) reject(graph, node, "a partial is dropped without a reduction");
    if (kind == Collective::all_reduce && from.dims != to.dims) reject(graph, node, "an all_reduce changes the layout");
    if (kind != Collective::to_partial && (to.partial & ~from.partial)) reject(graph, node, "a partial appears");
    check_boxes(graph, node, i, kind == Collective::slice ? 0 : node.atoms);
  }
}

}  // namespace

void verify(const Graph& graph) {
  std::vector<bool> made(graph.values.size(), false);
  for (const Input& input : graph.inputs) made[input.value] = true;
  for (const Node& node : graph.nodes) {
    for (ValueId value : node.inputs)
      if (!made[value]) reject(graph, node, "an operand is used before it is made");
    for (size_t i = 0; i < node.call->outputs.size(); ++i) made[node.output + i] = true;
    if (!graph.mesh) continue;
    if (is_collective(node))
      check_collective(graph, node);
    else
      check_op(graph, node);
  }
  if (!graph.mesh) return;
  for (const Output& output : graph.outputs) {
    const Sharding& sharding = *graph.values[output.value].sharding;
    if (sharding.partial) throw InternalError("verify: an output is left partial");
    if (output.annotation && output.annotation->dims != sharding.dims)
      throw InternalError("verify: an output does not have the sharding the user wrote");
  }
}

}  // namespace spmdx
