// SPDX-License-Identifier: Apache-2.0
// Rule: all that spmdx knows of an op. Factors, linearity, how attributes become local, how it expands.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace spmdx {

enum class FactorKind : uint8_t {
  pass,       // in inputs and outputs: any cut of it is local work
  reduce,     // in inputs only: cutting it makes the outputs partial with `reduction`
  replicate,  // `!`: may not be cut
  composite   // may be cut only after OpRule::expand turned the node into simpler ones
};

struct Factor {
  int64_t size = 1;
  FactorKind kind = FactorKind::pass;
  // For reduce: the reduction. For composite: sum where the expansion ends in partial outputs (addmm's k, mean),
  // none where it exchanges rows (softmax, layer_norm).
  Reduction reduction = Reduction::none;
  // A dim of this factor alone may have another size. It is cut by the same sub-axes in the ordinary layout: where the
  // factor may be cut at run time, it counts parts, and is cut into all of them or not at all.
  bool loose = false;
};

// How a partial operand may flow to the outputs. Only operands in OpRule::linear_inputs take part.
enum class Linearity : uint8_t {
  none,      // operands must be reduced first
  joint,     // all of them partial (sum) over the same sub-axes: outputs are partial likewise
  each,      // exactly one of them partial (sum), the others whole: outputs are partial
  monotone,  // single operand partial max or min: outputs likewise
  movement   // joint, for any reduction: the op only moves data
};

// "joint" and so on. Throws ShardingError.
Linearity parse_linearity(const std::string& text);

// Factors of every dim of a tensor, major → minor. A dim without factors is never cut (size 1, broadcast).
using TensorFactors = std::vector<std::vector<int>>;

struct OpRule;

// Rewrites `args` (a copy of call.args) for the device that holds these boxes. Most attributes need no change.
using Boxes = std::vector<Box>;
using Localise = void (*)(const Call& call, const Boxes& inputs, const Boxes& outputs, std::vector<Arg>& args);

// Appends to a graph what replaces a node. Returns one value per output of the node, kNone for one that nobody may use.
class Builder;
using Expand = std::vector<ValueId> (*)(Builder& builder, const Node& node);

struct OpRule {
  std::vector<Factor> factors;
  std::vector<TensorFactors> inputs;  // one per tensor operand
  std::vector<TensorFactors> outputs;
  Linearity linearity = Linearity::none;
  uint64_t linear_inputs = ~uint64_t{0};  // bit i: operand i takes part (operands ≥ 64 always do)
  Localise localise = nullptr;
  Expand expand = nullptr;       // required where a factor is composite
  bool random = false;           // never merged or duplicated
  bool fallback = false;         // no row: everything is replicated, and reported
  double flops_per_element = 1;  // per element of the product of all factor sizes
};
using OpRuleRef = std::shared_ptr<const OpRule>;

namespace rules {
using Values = std::vector<ValueId>;
}  // namespace rules

}  // namespace spmdx
