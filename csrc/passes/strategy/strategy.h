// SPDX-License-Identifier: Apache-2.0
// Strategy: which sub-axes cut which factor of one op, what that asks of its operands, and what it costs.
#pragma once
#include <optional>
#include <vector>

#include "rules/rule/rule.h"
#include "sharding/reshard/reshard.h"

namespace spmdx {

// The cut of each factor of a rule. `partial`: sub-axes over which the operands in `partial_operands` (a bit each, of
// those in OpRule::linear_inputs), and so the results, stay partial.
struct Strategy {
  std::vector<DimSharding> cuts;
  SubAxisSet partial = 0;
  Reduction reduction = Reduction::none;
  uint64_t partial_operands = ~uint64_t{0};

  bool operator==(const Strategy&) const = default;
  SubAxisSet used() const;
};
uint64_t hash(const Strategy& strategy);

// The shardings a strategy asks of the operands and gives to the results.
struct Placement {
  std::vector<ShardingRef> inputs, outputs;

  const ShardingRef& of(size_t tensor) const {  // operands first, then results
    return tensor < inputs.size() ? inputs[tensor] : outputs[tensor - inputs.size()];
  }
};

// One op in its mesh: what the functions below need to know of it.
struct OpContext {
  MeshRef mesh;
  const Call* call;
  const OpRule* rule;
  bool composite = false;  // whether composite factors may be cut

  size_t num_tensors() const { return rule->inputs.size() + rule->outputs.size(); }
  // Operands first, then results.
  const TensorFactors& factors(size_t tensor) const;
  const TensorType& type(size_t tensor) const;
};

// Whether an axis may cut this factor of the op at all.
bool may_cut(const OpContext& op, const Factor& factor);
// The cut of each factor that follows from a tensor's sharding; sub-axes that fit no factor are dropped. Partial
// sub-axes are ignored.
std::vector<DimSharding> cuts_of(const OpContext& op, size_t tensor, const ShardingRef& sharding);
// The same without factors that may not be cut.
Strategy project(const OpContext& op, size_t tensor, const ShardingRef& sharding);

// Nothing where some tensor cannot be laid out so (a minor factor cut below an uncut major one, mixed reductions).
std::optional<Placement> place(const OpContext& op, const Strategy& strategy);
bool fits(const OpContext& op, const Strategy& strategy);  // whether there is one

// Each hint leads one strategy, which the others complete, largest tensor first. Where sub-axes cut what must be whole,
// what is summed over, or what cannot be laid out, they are also tried on a factor that passes. The last strategy cuts
// nothing. hints[tensor] lists shardings.
std::vector<Strategy> candidates(const OpContext& op, const std::vector<std::vector<ShardingRef>>& hints);

// `now` without the cuts by any of these sub-axes.
Strategy without(const Strategy& now, SubAxisSet sub_axes);

// `now` with these sub-axes on any other factor, or on none.
std::vector<Strategy> neighbour_strategies(const OpContext& op, const Strategy& now, const SubAxisList& sub_axes);

// The cut of every factor as the shardings of a node's operands and results show it.
Strategy strategy_of(const OpContext& op, const Graph& graph, const Node& node);

// Whether a partial operand may flow through this op at all.
bool takes_part(const OpRule& rule, size_t operand);
bool has_factor(const TensorFactors& factors, int f);

// Floating-point operations of the device that has most to do; of one device for all where nothing is cut.
double local_flops(const OpContext& op, const Strategy& strategy);
// Time of the op itself on a device; that at position 0 has most to do.
struct OpTime {
  int64_t weighted_ns = 0;  // as it counts in the search: see limits.h
  int64_t clock_ns = 0;     // without weights; of a product what it computes, not what it reads
  int64_t device_ns = 0;    // as it takes on the device, with what it takes to start
};
OpTime time_of(const OpContext& op, const Strategy& strategy, const Topology& topology, int64_t position = 0);
// Estimate of the row-sized exchanges inside an expansion, where a composite factor is cut.
int64_t composite_ns(const OpContext& op, const Strategy& strategy, const Topology& topology);
bool cuts_composite(const OpContext& op, const Strategy& strategy);

// `base` with the dims that `more` cuts further; `base` itself where that does not fit.
ShardingRef extend(const ShardingRef& base, const ShardingRef& more, const Shape& shape);
// Without its partial sub-axes.
ShardingRef without_partial(const ShardingRef& sharding, const Shape& shape);

}  // namespace spmdx
