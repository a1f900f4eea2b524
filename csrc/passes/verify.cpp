// SPDX-License-Identifier: Apache-2.0
// Verify: an independent check that every node can run on what its operands' shards really hold.
#include <algorithm>
#include <optional>
#include <unordered_set>

#include "base/error.h"
#include "graph/node_kind.h"
#include "graph/places.h"
#include "graph/rows.h"
#include "passes/passes.h"
#include "rules/lookup.h"
#include "sharding/reshard/missing.h"
#include "sharding/shards.h"

namespace spmdx {
namespace {

constexpr int64_t kPositions = 64;  // positions of the mesh that are checked, of those that hold different parts
constexpr int64_t kBoxes = 256;     // boxes of a collective that are checked

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

using Ranges = std::vector<std::optional<Range>>;

// Factors that may not be cut are whole everywhere.
Ranges whole_factors(const OpRule& rule) {
  Ranges ranges(rule.factors.size());
  for (size_t f = 0; f < rule.factors.size(); ++f)
    if (rule.factors[f].kind == FactorKind::replicate || rule.factors[f].kind == FactorKind::composite)
      ranges[f] = Range{0, rule.factors[f].size};
  return ranges;
}

void learn(const Graph& graph, const Node& node, const OpRule& rule, int factor, const Range& range, Ranges& ranges) {
  std::optional<Range>& known = ranges[factor];
  if (known && known->extent == 0 && range.extent == 0) return;
  if (known && *known != range) {
    const FactorKind kind = rule.factors[factor].kind;
    const bool whole = kind == FactorKind::replicate || kind == FactorKind::composite;
    reject(graph, node,
           whole ? "a factor that must be whole is cut" : "operands and results hold different parts of a factor");
  }
  known = range;
}

// What a device holds of a dim, counted in parts if the factor is loose. Nothing where that does not tell which part it
// is.
std::optional<Range> in_parts(const Factor& factor, const Range& range, int64_t size) {
  if (!factor.loose) return range;
  if (range.extent == 0) return std::nullopt;
  if (range.extent == size) return Range{0, factor.size};
  const int64_t rows = (size + factor.size - 1) / factor.size;
  return Range{range.start / rows, (range.extent + rows - 1) / rows};
}

// A dim of several factors tells what a device holds of the most major one, if the others are whole.
void learn_major(const Graph& graph, const Node& node, const OpRule& rule, const std::vector<int>& factors,
                 const Range& range, Ranges& ranges) {
  int64_t rest = 1;
  for (size_t i = 1; i < factors.size(); ++i) {
    const int64_t size = rule.factors[factors[i]].size;
    if (ranges[factors[i]] != Range{0, size}) return;
    rest *= size;
  }
  if (range.extent == 0) return;
  if (range.start % rest || range.extent % rest) reject(graph, node, "a merged dim is cut inside of a whole factor");
  learn(graph, node, rule, factors[0], {range.start / rest, range.extent / rest}, ranges);
}

// What a device holds of a merged dim if it holds these parts of its factors, major → minor. Nothing where that is not
// known; an extent of −1 where it would be no range.
std::optional<Range> merged(const OpRule& rule, const std::vector<int>& factors, const Ranges& ranges) {
  Range all{0, 1};
  for (int f : factors) {
    if (!ranges[f]) return std::nullopt;
    const int64_t size = rule.factors[f].size;
    if (ranges[f]->extent != size && ranges[f]->extent != 0 && all.extent > 1) return Range{0, -1};
    all = {all.start * size + ranges[f]->start, all.extent * ranges[f]->extent};
  }
  return all;
}

// All operands and results hold the same part of each factor.
void check_ranges(const Graph& graph, const Node& node, const OpRule& rule, int64_t position) {
  Ranges ranges = whole_factors(rule);
  const size_t tensors = rule.inputs.size() + rule.outputs.size();
  std::vector<Box> boxes;
  for (size_t t = 0; t < tensors; ++t) {
    const Value& value = graph.values[value_of(node, t)];
    boxes.push_back(local_box(*value.sharding, value.type.shape, position));
  }
  const auto each_dim = [&](auto&& visit) {
    for (size_t t = 0; t < tensors; ++t)
      for (size_t d = 0; d < factors_of(rule, t).size(); ++d) visit(t, d, factors_of(rule, t)[d]);
  };
  each_dim([&](size_t t, size_t d, const std::vector<int>& factors) {
    if (factors.size() != 1) return;
    const int64_t size = graph.values[value_of(node, t)].type.shape[d];
    if (const auto range = in_parts(rule.factors[factors[0]], boxes[t][d], size))
      learn(graph, node, rule, factors[0], *range, ranges);
  });
  each_dim([&](size_t t, size_t d, const std::vector<int>& factors) {
    if (factors.size() > 1) learn_major(graph, node, rule, factors, boxes[t][d], ranges);
  });
  each_dim([&](size_t t, size_t d, const std::vector<int>& factors) {
    const Range whole{0, graph.values[value_of(node, t)].type.shape[d]};
    if (factors.empty() && boxes[t][d] != whole) reject(graph, node, "a dim without factor is cut");
    const std::optional<Range> expected = factors.size() > 1 ? merged(rule, factors, ranges) : std::nullopt;
    if (!expected || (expected->extent == 0 && boxes[t][d].extent == 0)) return;
    if (*expected != boxes[t][d]) reject(graph, node, "a merged dim does not hold what its factors hold");
  });
}

// How many of a dim's factors, major → minor, its cut can tell apart: it does not go into those that fill a tile.
size_t factors_cut(const OpRule& rule, const std::vector<int>& factors, int64_t tile) {
  size_t n = factors.size();
  for (int64_t rest = 1; n > 1; --n) {
    rest *= rule.factors[factors[n - 1]].size;
    if (tile % rest) return n;
  }
  return n;
}

// Those of a dim's sub-axes that cut this one of its factors: a factor has sub-axes only where the one before it is cut
// into single elements; the last one has all that are left.
SubAxisSet sub_axes_of_factor(const Mesh& mesh, const OpRule& rule, const std::vector<int>& factors,
                              const DimSharding& dim, int factor) {
  size_t next = 0;
  const size_t n = factors_cut(rule, factors, dim.tile);
  for (size_t i = 0; i < n; ++i) {
    const int64_t size = rule.factors[factors[i]].size;
    SubAxisSet mine = 0;
    while (next < dim.sub_axes.size() && (i + 1 == n || mesh.group_size(mine) < size))
      mine |= SubAxisSet{1} << dim.sub_axes[next++];
    if (factors[i] == factor) return mine;
    if (mesh.group_size(mine) != size) return 0;
  }
  return 0;
}

SubAxisSet sub_axes_on(const Graph& graph, const Node& node, const OpRule& rule, int factor) {
  SubAxisSet sub_axes = 0;
  for (size_t t = 0; t < rule.inputs.size(); ++t)
    for (size_t d = 0; d < rule.inputs[t].size(); ++d) {
      const DimSharding& cut = graph.values[node.inputs[t]].sharding->dims[d];
      sub_axes |= sub_axes_of_factor(*graph.mesh, rule, rule.inputs[t][d], cut, factor);
    }
  return sub_axes;
}

bool contains(const TensorFactors& dims, int factor) {
  return std::any_of(dims.begin(), dims.end(), [factor](const std::vector<int>& dim) {
    return std::find(dim.begin(), dim.end(), factor) != dim.end();
  });
}

// Which reductions pass through an op of this linearity.
bool lets_pass(Linearity linearity, Reduction reduction) {
  const bool extreme = reduction == Reduction::max || reduction == Reduction::min;
  switch (linearity) {
    case Linearity::none:
      return false;
    case Linearity::joint:
    case Linearity::each:
      return reduction == Reduction::sum;
    case Linearity::monotone:
      return extreme;
    case Linearity::movement:
      return true;
  }
  return false;
}

// The sub-axes over which a node's results are partial because its operands are, and the reduction.
struct Flow {
  SubAxisSet sub_axes = 0;
  Reduction reduction = Reduction::none;
};

Flow check_partial_operands(const Graph& graph, const Node& node, const OpRule& rule) {
  Flow flow;
  size_t taking_part = 0, partial = 0;
  for (size_t t = 0; t < node.inputs.size(); ++t) {
    const Sharding& sharding = *graph.values[node.inputs[t]].sharding;
    const bool takes_part = t >= 64 || (rule.linear_inputs >> t & 1);
    taking_part += takes_part;
    if (!sharding.partial) continue;
    if (!takes_part || !lets_pass(rule.linearity, sharding.reduction))
      reject(graph, node, "a partial operand meets an op that is not linear in it");
    if (partial++ && (sharding.partial != flow.sub_axes || sharding.reduction != flow.reduction))
      reject(graph, node, "operands are partial over different axes");
    flow = {sharding.partial, sharding.reduction};
  }
  if (!partial) return flow;
  const bool each = rule.linearity == Linearity::each;
  if (each && partial > 1) reject(graph, node, "two operands of a product are partial");
  if (!each && partial != taking_part) reject(graph, node, "a partial operand is combined with a whole one");
  if (rule.linearity == Linearity::monotone && taking_part > 1)
    reject(graph, node, "maxima of several operands are combined");
  for (size_t t = 0; t < node.inputs.size() + node.call->outputs.size(); ++t)
    if (graph.values[value_of(node, t)].sharding->dim_sub_axes() & flow.sub_axes)
      reject(graph, node, "devices that hold summands hold different parts");
  return flow;
}

void check_partials(const Graph& graph, const Node& node, const OpRule& rule) {
  const Flow flow = check_partial_operands(graph, node, rule);
  for (size_t t = 0; t < rule.outputs.size(); ++t) {
    Flow expected = flow;
    for (size_t f = 0; f < rule.factors.size(); ++f) {
      const Factor& factor = rule.factors[f];
      if (factor.reduction == Reduction::none || contains(rule.outputs[t], static_cast<int>(f))) continue;
      const SubAxisSet sub_axes = sub_axes_on(graph, node, rule, static_cast<int>(f));
      if (sub_axes && expected.sub_axes && expected.reduction != factor.reduction)
        reject(graph, node, "a result mixes two reductions");
      if (sub_axes) expected = {expected.sub_axes | sub_axes, factor.reduction};
    }
    const Sharding& actual = *graph.values[node.output + t].sharding;
    if (expected.sub_axes & ~actual.partial) reject(graph, node, "a result that is partial is taken for whole");
    if (actual.partial & ~expected.sub_axes) reject(graph, node, "a whole result is taken for partial");
    if (actual.partial && actual.reduction != expected.reduction)
      reject(graph, node, "a result is reduced otherwise than it was made");
  }
}

// Layers are alike, and so are microbatches.
using Checked = std::unordered_set<NodeKind, HashOfNodeKind>;

void check_op(const Graph& graph, const Node& node, Checked& checked) {
  if (!checked.insert(kind_of(graph, node)).second) return;
  const OpRuleRef rule = rule_for(node.call);
  if (rule->inputs.size() != node.inputs.size()) reject(graph, node, "the rule has other operands");
  SubAxisSet used = 0;
  for (size_t t = 0; t < rule->inputs.size() + rule->outputs.size(); ++t)
    used |= graph.values[value_of(node, t)].sharding->dim_sub_axes();
  const int64_t all = num_distinct(*graph.mesh, used), positions = std::min(all, kPositions);
  for (int64_t i = 0; i < positions; ++i)
    check_ranges(graph, node, *rule, representative(*graph.mesh, used, i * all / positions));
  check_partials(graph, node, *rule);
}

// All that a device holds afterwards was on the devices that differ from it along `sub_axes`. What comes from another
// mesh may come from all of its devices, and they hold everything.
void check_boxes(const Graph& graph, const Node& node, size_t operand, SubAxisSet sub_axes) {
  const Value &before = graph.values[node.inputs[operand]], &after = graph.values[node.output + operand];
  if (*before.sharding->mesh != *after.sharding->mesh) {
    if (before.sharding->partial | after.sharding->partial) reject(graph, node, "a sum between two meshes");
    return;
  }
  const int64_t size = graph.mesh->size();
  const int64_t positions = std::clamp<int64_t>(kBoxes / graph.mesh->group_size(sub_axes), 1, size);
  for (int64_t i = 0; i < positions; ++i)
    if (!group_holds(*before.sharding, *after.sharding, before.type.shape, sub_axes, (i + 1) * size / positions - 1))
      reject(graph, node, "a device needs what no device of its group has");
}

// Rows of one dim are on devices that differ along its sub-axes, and nothing else changes.
void check_rows(const Graph& graph, const Node& node) {
  const Value &before = graph.values[node.inputs[0]], &after = graph.values[node.output];
  const RowMap rows = row_map(*node.call);
  const Sharding &from = *before.sharding, &to = *after.sharding;
  if (sub_axis_set(from.dims[rows.dim].sub_axes) & ~node.sub_axes)
    reject(graph, node, "rows come from outside of its group");
  for (size_t d = 0; d < from.dims.size(); ++d)
    if (static_cast<int64_t>(d) != rows.dim && from.dims[d] != to.dims[d]) reject(graph, node, "another dim changes");
  for (int64_t source : rows.sources)
    if (source >= before.type.shape[rows.dim]) reject(graph, node, "a row is taken that is not there");
}

void check_collective(const Graph& graph, const Node& node) {
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const Sharding& from = *graph.values[node.inputs[i]].sharding;
    const Sharding& to = *graph.values[node.output + i].sharding;
    const CollectiveRow& kind = traits_of(collective_kind(node));
    const SubAxisSet lost = from.partial & ~to.partial;
    if (kind.reduces && (lost == 0 || (lost & ~node.sub_axes) != 0))
      reject(graph, node, "it reduces other axes than it says");
    if (!kind.reduces && lost) reject(graph, node, "a partial is dropped without a reduction");
    if (kind.keeps_cuts && from.dims != to.dims) reject(graph, node, "dims are cut otherwise");
    if (!kind.makes_partial && (to.partial & ~from.partial)) reject(graph, node, "a partial appears");
    if (node.call->op == kCommHalo || node.call->op == kPermuteRows)
      check_rows(graph, node);
    else
      check_boxes(graph, node, i, kind.crossings == 0 ? 0 : node.sub_axes);
  }
}

// What an op reads is where it runs, or everywhere. Only a send, or a slice of what is at hand, leads to another place,
// and copies alone read what lies on hosts. A collective between two meshes reads both.
void check_places(const Graph& graph, const Node& node) {
  const Mesh& mesh = *graph.mesh;
  const Place place = place_of(graph, node);
  for (size_t r = 1; r < node.call->outputs.size(); ++r)
    if (graph.values[node.output + r].sharding->place != place) reject(graph, node, "the results are in two places");
  const bool sends = is_collective(node) && collective_kind(node) == Collective::send_recv;
  const bool slices = is_collective(node) && collective_kind(node) == Collective::slice;
  for (ValueId value : node.inputs) {
    const Sharding& from = *graph.values[value].sharding;
    if (*from.mesh != mesh) continue;
    if (from.place.host != (node.call->op == kToDevice)) reject(graph, node, "an operand is in other memory");
    if (from.place.whole() || from.place.on_device() == place || sends) continue;
    if (!slices || !same_devices(mesh, from.place, place)) reject(graph, node, "an operand is in another place");
  }
}

// Which kind of devices has a value is not for the user to say, unless he does.
bool is_as_written(const Graph& graph, const Sharding& found, const Sharding& written) {
  const bool is_free = !graph.kinds.empty() && written.place.whole() && found.place.host == written.place.host;
  return found.dims == written.dims && (is_free || found.place == written.place);
}

}  // namespace

void verify(const Graph& graph) {
  std::vector<bool> made(graph.values.size(), false);
  Checked checked;
  for (const Input& input : graph.inputs) made[input.value] = true;
  for (const Node& node : graph.nodes) {
    for (ValueId value : node.inputs)
      if (!made[value]) reject(graph, node, "an operand is used before it is made");
    for (size_t i = 0; i < node.call->outputs.size(); ++i) made[node.output + i] = true;
    if (!graph.mesh) continue;
    check_places(graph, node);
    if (is_collective(node))
      check_collective(graph, node);
    else
      check_op(graph, node, checked);
  }
  if (!graph.mesh) return;
  for (const Output& output : graph.outputs) {
    const Sharding& sharding = *graph.values[output.value].sharding;
    if (sharding.partial) throw InternalError("verify: an output is left partial");
    if (output.annotation && !is_as_written(graph, sharding, *output.annotation))
      throw InternalError("verify: an output does not have the sharding the user wrote");
  }
}

}  // namespace spmdx
