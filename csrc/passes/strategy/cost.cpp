// SPDX-License-Identifier: Apache-2.0
// What a strategy costs on the device that has most to do: work, memory traffic, exchanges inside composites.
#include <algorithm>

#include "graph/rows.h"
#include "passes/settings/limits.h"
#include "passes/strategy/strategy.h"
#include "rules/rows/taken_rows.h"
#include "sharding/shards.h"

namespace spmdx {
namespace {

// What a device holds of each factor; that at position 0 most.
std::vector<double> local_extents(const OpContext& op, const Strategy& strategy, int64_t position = 0) {
  std::vector<double> extents;
  for (size_t f = 0; f < op.rule->factors.size(); ++f) {
    const int64_t size = op.rule->factors[f].size;
    const bool cut = f < strategy.cuts.size() && !strategy.cuts[f].empty();
    extents.push_back(static_cast<double>(cut ? local_range(*op.mesh, strategy.cuts[f], size, position).extent : size));
  }
  return extents;
}

double local_elements(const OpContext& op, size_t tensor, const std::vector<double>& extents) {
  double elements = 1;
  const TensorFactors& factors = op.factors(tensor);
  for (size_t d = 0; d < factors.size(); ++d) {
    const auto size = static_cast<double>(op.type(tensor).shape[d]);
    if (factors[d].empty()) elements *= size;
    for (int f : factors[d]) {
      const Factor& factor = op.rule->factors[static_cast<size_t>(f)];
      const double of_size = factor.loose ? size / static_cast<double>(factor.size) : 1;
      elements *= of_size * extents[static_cast<size_t>(f)];
    }
  }
  return elements;
}

double local_bytes(const OpContext& op, const std::vector<double>& extents) {
  double bytes = 0;
  for (size_t t = 0; t < op.num_tensors(); ++t)
    bytes += local_elements(op, t, extents) * static_cast<double>(itemsize(op.type(t).dtype));
  return bytes;
}

double flops_of(const OpContext& op, const std::vector<double>& extents) {
  double elements = 1;
  if (op.rule->product) {
    for (double extent : extents) elements *= extent;
  } else {  // every element is touched once
    elements = 0;
    for (size_t t = 0; t < op.num_tensors(); ++t) elements = std::max(elements, local_elements(op, t, extents));
  }
  return elements * op.rule->flops_per_element;
}

// A reduction over dims of which every device has one element: only the collective has work to do.
bool reduces_nothing(const OpContext& op, const std::vector<double>& extents) {
  bool reduces = false;
  for (size_t f = 0; f < extents.size(); ++f) {
    if (op.rule->factors[f].kind != FactorKind::reduce) continue;
    if (extents[f] > 1) return false;
    reduces = true;
  }
  return reduces && !op.rule->product;
}

// Rows that parts of a cut dim send each other: what the pass `lower-permutes` makes of the op.
int64_t exchange_ns(const OpContext& op, const Strategy& strategy, const std::vector<double>& extents,
                    const Topology& topology) {
  const RowMap rows = op.call->op.starts_with("spmdx.") ? row_map(*op.call) : RowMap{};
  if (rows.dim < 0) return 0;
  const size_t result = op.rule->inputs.size(), dim = static_cast<size_t>(rows.dim);
  const std::vector<int>& factors = op.factors(result).at(dim);
  if (factors.size() != 1 || strategy.cuts[static_cast<size_t>(factors[0])].empty()) return 0;
  const int64_t parts = op.mesh->group_size(sub_axis_set(strategy.cuts[static_cast<size_t>(factors[0])].sub_axes));
  const int64_t of = op.type(0).shape.at(dim), to = op.type(result).shape.at(dim);
  int64_t most = 0;
  for (int64_t i = 0; i < parts; ++i)
    most = std::max(most, rows_from_elsewhere(rows, part_of(of, parts, i), part_of(to, parts, i)));
  const double share = static_cast<double>(most) / static_cast<double>(part_of(to, parts, 0).extent);
  const double bytes =
      local_elements(op, result, extents) * share * static_cast<double>(itemsize(op.type(result).dtype));
  return topology.cost_ns(Collective::collective_permute, static_cast<int64_t>(bytes));
}

// Rows that go from part to part inside an expansion: those of a slice, or about one where neighbours overlap.
int64_t rows_lacked(const OpContext& op, size_t factor, int64_t parts) {
  for (const rules::TakenRows& rows : rules::taken_rows(*op.call)) {
    const std::vector<int>& factors = op.factors(0).at(rows.dim);
    if (std::find(factors.begin(), factors.end(), static_cast<int>(factor)) != factors.end())
      return most_lacked(rows, op.type(0).shape.at(rows.dim), op.type(op.rule->inputs.size()).shape.at(rows.dim),
                         parts);
  }
  return 1;
}

double weight_of(const OpRule& rule) { return rule.product ? kLimits.weight_of_products : kLimits.weight_of_other_ops; }

}  // namespace

double local_flops(const OpContext& op, const Strategy& strategy) {
  return op.rule->linearity == Linearity::movement ? 0 : flops_of(op, local_extents(op, strategy));
}

OpTime time_of(const OpContext& op, const Strategy& strategy, const Topology& topology, int64_t position) {
  if (op.rule->linearity == Linearity::movement) return {};
  const std::vector<double> extents = local_extents(op, strategy, position);
  const int64_t exchanged = exchange_ns(op, strategy, extents, topology);
  if (reduces_nothing(op, extents)) return {};
  const Hardware& hardware = topology.hardware;
  const double flops = flops_of(op, extents), bytes = local_bytes(op, extents), memory = hardware.memory_ps(bytes);
  const double compute = op.rule->product ? hardware.product_ps(flops, op.type(0).dtype) : hardware.other_ps(flops);
  const double longer = std::max(op.rule->product ? compute + hardware.packing_ps(bytes) : compute, memory);
  const auto ns = [&](double picoseconds) {
    return exchanged + static_cast<int64_t>(std::min(picoseconds / 1000, 1e15));
  };
  // In the search a product counts by its operations alone: with their weight, one that memory bounds would be cut at
  // any price.
  const double counted = op.rule->product ? compute : longer;
  return {ns(counted * weight_of(*op.rule)), ns(counted), ns(longer) + hardware.launch_ns};
}

int64_t composite_ns(const OpContext& op, const Strategy& strategy, const Topology& topology) {
  int64_t total = 0;
  const std::vector<double> extents = local_extents(op, strategy);
  const size_t result = op.num_tensors() - 1;
  for (size_t f = 0; f < strategy.cuts.size(); ++f) {
    const Factor& factor = op.rule->factors[f];
    if (factor.kind != FactorKind::composite || strategy.cuts[f].empty() || factor.reduction != Reduction::none)
      continue;
    const int64_t group = op.mesh->group_size(sub_axis_set(strategy.cuts[f].sub_axes));
    double elements = local_elements(op, result, extents);
    if (has_factor(op.factors(result), static_cast<int>(f))) elements /= std::max(extents[f], 1.0);
    const int64_t rows = static_cast<int64_t>(elements) * itemsize(op.type(result).dtype);
    if (factor.loose) {  // neighbours send each other some rows
      total += topology.cost_ns(Collective::collective_permute, rows * rows_lacked(op, f, group));
      continue;
    }
    if (op.rule->linearity == Linearity::movement) {  // a part of the result goes to other devices
      total += topology.cost_ns(Collective::all_to_all, wire_bytes(Collective::all_to_all, rows / group, group),
                                Group(group));
      continue;
    }
    total += 2 * topology.cost_ns(Collective::all_reduce, wire_bytes(Collective::all_reduce, rows, group));
  }
  return total;
}

}  // namespace spmdx
