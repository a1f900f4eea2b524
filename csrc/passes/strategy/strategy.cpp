// SPDX-License-Identifier: Apache-2.0
// Strategies: from shardings of tensors to cuts of factors and back.
#include "passes/strategy/strategy.h"

#include <algorithm>

#include "rules/build/summed.h"
#include "sharding/cuts.h"

namespace spmdx {
namespace {

int64_t product(const Mesh& mesh, const SubAxisList& sub_axes) { return mesh.group_size(sub_axis_set(sub_axes)); }

// Whether `dim` is cut where a factor (major part of the dim, `rest` elements each) cut by `cut` would cut it.
bool cuts_as(const Mesh& mesh, const DimSharding& dim, const DimSharding& cut, int64_t rest, int64_t size) {
  return same_cuts(mesh, dim, DimSharding{cut.sub_axes, cut.tile * rest}, size);
}

// The longest prefix of dim's sub-axes that falls between whole elements of the major factor.
DimSharding prefix_on(const Mesh& mesh, const DimSharding& dim, int64_t factor_size, int64_t rest, int64_t size) {
  for (size_t n = dim.sub_axes.size(); n > 0; --n) {
    DimSharding head{{dim.sub_axes.begin(), dim.sub_axes.begin() + static_cast<long>(n)}, dim.tile};
    DimSharding cut{head.sub_axes, dim.tile % rest == 0 ? dim.tile / rest : 1};
    if (!is_legal(mesh, head, size) || !is_legal(mesh, cut, factor_size)) continue;
    if (cuts_as(mesh, head, cut, rest, size)) return cut;
  }
  return {};
}

// A dim of one loose factor: cut by the same sub-axes in the ordinary layout.
bool is_loose(const OpContext& op, const std::vector<int>& factors) {
  return factors.size() == 1 && op.rule->factors[factors[0]].loose;
}

// Several axes cut a dim one after the other, which gives other parts than one cut where they do not divide it.
bool is_one_cut(const Mesh& mesh, const DimSharding& cut, int64_t size) {
  const std::vector<Range> parts = pieces(mesh, cut, size);
  const int64_t rows = chunk_size(size, 1, static_cast<int64_t>(parts.size()));
  int64_t start = 0;
  for (const Range& part : parts) {
    if (part.extent != std::min(rows, size - start) || (part.extent > 0 && part.start != start)) return false;
    start += part.extent;
  }
  return true;
}

bool fits_loosely(const OpContext& op, const Factor& factor, const DimSharding& cut, int64_t size) {
  if (!is_legal(*op.mesh, cut, size) || !is_one_cut(*op.mesh, cut, size)) return false;
  return factor.kind == FactorKind::composite || product(*op.mesh, cut.sub_axes) == factor.size;
}

// Hands dim's sub-axes to its factors, major → minor; stops at the first factor they do not split into single elements.
void project_dim(const OpContext& op, const std::vector<int>& factors, DimSharding dim, int64_t size,
                 std::vector<DimSharding>& cuts) {
  if (is_loose(op, factors)) {
    DimSharding cut{std::move(dim.sub_axes), 1};
    if (fits_loosely(op, op.rule->factors[factors[0]], cut, size)) cuts[factors[0]] = std::move(cut);
    return;
  }
  int64_t rest = size;
  for (size_t i = 0; i < factors.size() && !dim.empty(); ++i) {
    const int64_t factor_size = op.rule->factors[factors[i]].size;
    if (factor_size == 0) return;
    const int64_t extent = rest;
    rest /= factor_size;
    if (factor_size == 1) continue;
    DimSharding cut = prefix_on(*op.mesh, dim, factor_size, rest, extent);
    if (cut.empty()) return;
    dim.sub_axes = {dim.sub_axes.begin() + cut.sub_axes.size(), dim.sub_axes.end()};
    const bool whole = product(*op.mesh, cut.sub_axes) == factor_size;
    cuts[factors[i]] = std::move(cut);
    if (!whole) return;
    dim.tile = 1;
  }
}

// The sharding of one dim under a strategy, or nothing where it would need a strided layout.
std::optional<DimSharding> unproject_dim(const OpContext& op, const std::vector<int>& factors, int64_t size,
                                         const std::vector<DimSharding>& cuts) {
  if (is_loose(op, factors)) {
    const DimSharding& cut = cuts[factors[0]];
    if (!cut.empty() && !fits_loosely(op, op.rule->factors[factors[0]], cut, size)) return std::nullopt;
    return cut;
  }
  DimSharding dim;
  if (std::all_of(factors.begin(), factors.end(), [&](int f) { return cuts[f].empty(); })) return dim;
  int64_t rest = size;
  bool open = true;  // every factor so far is split into single elements
  for (int f : factors) {
    const int64_t factor_size = op.rule->factors[f].size;
    if (factor_size <= 1) continue;
    rest /= factor_size;
    const DimSharding& cut = cuts[f];
    if (!cut.empty() && !open) return std::nullopt;
    if (!cut.empty()) {
      dim.sub_axes.append(cut.sub_axes);
      dim.tile = cut.tile * rest;
    }
    open = open && !cut.empty() && product(*op.mesh, cut.sub_axes) == factor_size;
  }
  if (!is_legal(*op.mesh, dim, size)) return std::nullopt;
  return dim;
}

// The axes over which a tensor is partial under a strategy. False where it would be partial in two ways.
bool add_partial(const OpContext& op, const Strategy& strategy, size_t t, Sharding& sharding) {
  const bool is_input = t < op.rule->inputs.size();
  const bool left_partial = t >= 64 || (strategy.partial_operands >> t & 1);
  if (strategy.partial && (!is_input || (takes_part(*op.rule, t) && left_partial))) {
    sharding.partial = strategy.partial;
    sharding.reduction = strategy.reduction;
  }
  for (size_t f = 0; !is_input && f < strategy.cuts.size(); ++f) {
    const Factor& factor = op.rule->factors[f];
    if (strategy.cuts[f].empty() || factor.reduction == Reduction::none ||
        has_factor(op.factors(t), static_cast<int>(f)))
      continue;
    if (sharding.partial && sharding.reduction != factor.reduction) return false;
    sharding.partial |= sub_axis_set(strategy.cuts[f].sub_axes);
    sharding.reduction = factor.reduction;
  }
  return !sharding.partial || rules::is_summed(op.type(t).dtype);
}

// Nothing where the tensor cannot be laid out so. Not interned.
std::optional<Sharding> layout_of(const OpContext& op, const Strategy& strategy, size_t t) {
  Sharding sharding{op.mesh, {}, 0, Reduction::none};
  const TensorFactors& factors = op.factors(t);
  sharding.dims.reserve(factors.size());
  for (size_t d = 0; d < factors.size(); ++d) {
    auto dim = unproject_dim(op, factors[d], op.type(t).shape[d], strategy.cuts);
    if (!dim) return std::nullopt;
    sharding.dims.push_back(*dim);
  }
  if (!add_partial(op, strategy, t, sharding)) return std::nullopt;
  return sharding;
}

}  // namespace

bool may_cut(const OpContext& op, const Factor& factor) {
  if (factor.kind == FactorKind::replicate || factor.size <= 1) return false;
  return factor.kind != FactorKind::composite || (op.composite && op.rule->expand != nullptr);
}

std::vector<DimSharding> cuts_of(const OpContext& op, size_t tensor, const ShardingRef& sharding) {
  std::vector<DimSharding> cuts(op.rule->factors.size());
  const TensorFactors& factors = op.factors(tensor);
  for (size_t d = 0; d < factors.size() && d < sharding->dims.size(); ++d)
    project_dim(op, factors[d], sharding->dims[d], op.type(tensor).shape[d], cuts);
  return cuts;
}

bool has_factor(const TensorFactors& factors, int f) {
  return std::any_of(factors.begin(), factors.end(),
                     [f](const std::vector<int>& dim) { return std::find(dim.begin(), dim.end(), f) != dim.end(); });
}

SubAxisSet Strategy::used() const {
  SubAxisSet set = partial;
  for (const DimSharding& cut : cuts) set |= sub_axis_set(cut.sub_axes);
  return set;
}

uint64_t hash(const Strategy& strategy) {
  uint64_t h = hash_combine(strategy.partial, strategy.partial_operands);
  h = hash_combine(h, static_cast<uint64_t>(strategy.reduction));
  for (const DimSharding& cut : strategy.cuts) h = hash_combine(h, cut);
  return h;
}

const TensorFactors& OpContext::factors(size_t tensor) const {
  return tensor < rule->inputs.size() ? rule->inputs[tensor] : rule->outputs[tensor - rule->inputs.size()];
}

const TensorType& OpContext::type(size_t tensor) const {
  return tensor < call->inputs.size() ? call->inputs[tensor] : call->outputs[tensor - call->inputs.size()];
}

Strategy project(const OpContext& op, size_t tensor, const ShardingRef& sharding) {
  Strategy strategy;
  strategy.cuts = cuts_of(op, tensor, sharding);
  for (size_t f = 0; f < strategy.cuts.size(); ++f)
    if (!may_cut(op, op.rule->factors[f])) strategy.cuts[f] = {};
  return strategy;
}

bool fits(const OpContext& op, const Strategy& strategy) {
  for (size_t t = 0; t < op.num_tensors(); ++t)
    if (!layout_of(op, strategy, t)) return false;
  return true;
}

std::optional<Placement> place(const OpContext& op, const Strategy& strategy) {
  Placement placement;
  placement.inputs.reserve(op.rule->inputs.size());
  placement.outputs.reserve(op.rule->outputs.size());
  for (size_t t = 0; t < op.num_tensors(); ++t) {
    std::optional<Sharding> sharding = layout_of(op, strategy, t);
    if (!sharding) return std::nullopt;
    const bool is_input = t < op.rule->inputs.size();
    (is_input ? placement.inputs : placement.outputs).push_back(intern(std::move(*sharding), op.type(t).shape));
  }
  return placement;
}

Strategy strategy_of(const OpContext& op, const Graph& graph, const Node& node) {
  Strategy strategy;
  strategy.cuts.resize(op.rule->factors.size());
  for (size_t t = 0; t < op.num_tensors(); ++t) {
    const ValueId value =
        t < node.inputs.size() ? node.inputs[t] : node.output + static_cast<ValueId>(t - node.inputs.size());
    const ShardingRef sharding = graph.values[value].sharding;
    if (!sharding) continue;
    const Strategy seen = project(op, t, sharding);
    for (size_t f = 0; f < seen.cuts.size(); ++f)
      if (seen.cuts[f].sub_axes.size() > strategy.cuts[f].sub_axes.size()) strategy.cuts[f] = seen.cuts[f];
  }
  return strategy;
}

bool takes_part(const OpRule& rule, size_t operand) { return operand >= 64 || (rule.linear_inputs >> operand & 1); }

bool cuts_composite(const OpContext& op, const Strategy& strategy) {
  for (size_t f = 0; f < strategy.cuts.size(); ++f)
    if (op.rule->factors[f].kind == FactorKind::composite && !strategy.cuts[f].empty()) return true;
  return false;
}

ShardingRef extend(const ShardingRef& base, const ShardingRef& more, const Shape& shape) {
  if (base == more) return base;
  Sharding result = *base;
  SubAxisSet used = base->used();
  for (size_t d = 0; d < result.dims.size(); ++d) {
    const DimSharding& mine = base->dims[d];
    const DimSharding& other = more->dims[d];
    if (other.sub_axes.size() <= mine.sub_axes.size()) continue;
    if (!mine.empty() && mine.tile != other.tile) continue;
    if (!std::equal(mine.sub_axes.begin(), mine.sub_axes.end(), other.sub_axes.begin())) continue;
    const SubAxisSet added = sub_axis_set(other.sub_axes) & ~sub_axis_set(mine.sub_axes);
    if (used & added) continue;
    used |= added;
    result.dims[d] = other;
  }
  return intern(std::move(result), shape);
}

ShardingRef without_partial(const ShardingRef& sharding, const Shape& shape) {
  if (!sharding->partial) return sharding;
  Sharding whole = *sharding;
  whole.partial = 0;
  whole.reduction = Reduction::none;
  return intern(std::move(whole), shape);
}

}  // namespace spmdx
