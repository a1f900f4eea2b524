// SPDX-License-Identifier: Apache-2.0
// Rule: all that spmdx knows of one call: its factors, its linearity, how its arguments become local, how it expands.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace spmdx {

enum class FactorKind : uint8_t {
  pass,       // inputs and outputs have it: each device computes its part of it alone
  reduce,     // only inputs have it: where it is cut, the outputs are partial with `reduction`
  replicate,  // may not be cut; written `!`
  composite   // may be cut only after OpRule::expand has replaced the node by simpler ones
};

struct Factor {
  int64_t size = 1;
  FactorKind kind = FactorKind::pass;
  // Of a reduce factor: how the outputs are partial. Of a composite one: sum where the expansion ends in partial
  // outputs (addmm's k, mean), none where it exchanges data inside (softmax, layer_norm).
  Reduction reduction = Reduction::none;
  // Loose: dims that have this factor alone may differ in size; the same sub-axes cut each of them as an ordinary dim.
  // Where a loose factor is not composite, `size` is a number of parts, and it is cut into all of them or not at all.
  bool loose = false;
};

// How partial operands may flow through an op. Only operands in OpRule::linear_inputs may be partial.
enum class Linearity : uint8_t {
  none,      // partial operands must be reduced before the op
  joint,     // if all these operands are partial sums over the same sub-axes, so are the outputs
  each,      // if exactly one of these operands is a partial sum, so are the outputs
  monotone,  // if the single operand is a partial max or min, so are the outputs
  movement   // as joint, for every reduction: the op only moves data
};

// The linearity that is called `text` ("joint"). Throws ShardingError for any other word.
Linearity parse_linearity(const std::string& text);

// For every dim of a tensor the indices of its factors, major → minor. A dim without factors is never cut: it has size
// 1, or is whole on every device.
using TensorFactors = std::vector<std::vector<int>>;

struct OpRule;

// A localise function rewrites `args`, a copy of call.args, for a device that holds these boxes of the operands and
// results. Most ops need none.
using Boxes = std::vector<Box>;
using Localise = void (*)(const Call& call, const Boxes& inputs, const Boxes& outputs, std::vector<Arg>& args);

// An expansion appends the nodes that replace `node` to the builder's graph. Returns one value per output of the node;
// kNone for an output that the op does not make.
class Builder;
using Expand = std::vector<ValueId> (*)(Builder& builder, const Node& node);

struct OpRule {
  std::vector<Factor> factors;
  std::vector<TensorFactors> inputs;   // one per tensor operand
  std::vector<TensorFactors> outputs;  // one per result
  Linearity linearity = Linearity::none;
  uint64_t linear_inputs = ~uint64_t{0};  // bit i: operand i may be partial (operands from 64 on always may)
  Localise localise = nullptr;            // null: the arguments are the same on every device
  Expand expand = nullptr;                // set if and only if a factor is composite
  bool random = false;                    // it draws random numbers: never merged or duplicated
  bool fallback = false;         // there is no rule for the call: it runs whole on every device, which is reported
  bool product = false;          // each result is a sum of products
  double flops_per_element = 1;  // floating-point operations, over the product of the sizes of all factors
};
double all_flops(const OpRule& rule);
void set_all_flops(OpRule& rule, double flops);
using OpRuleRef = std::shared_ptr<const OpRule>;

namespace rules {
using Values = std::vector<ValueId>;
}  // namespace rules

}  // namespace spmdx
