// SPDX-License-Identifier: Apache-2.0
// Row: all that is known of one op by its name. The rows are in table.cpp, the only file that includes every family.
#pragma once
#include <span>
#include <string_view>

#include "rules/rule/rule.h"

namespace spmdx::rules {

struct Stencil;  // stencil.h

// Whether the result of an op has memory of its own.
enum class MemoryUse : uint8_t {
  fresh,    // the result has memory of its own
  view,     // it shares memory with the first operand: in another order, with gaps or with repeated elements
  part,     // it shares memory with the first operand: some rows of the dim that argument 1 names
  reshape,  // it shares memory with the first operand if that lies in row-major order; else it is a copy
  in_place  // the kernel may write it over the first operand, if nobody reads that operand afterwards
};

// What the op's kernel asks of the memory of its operands. The backend copies an operand that does not meet it.
enum class Needs : uint8_t {
  any,
  contiguous,  // because the kernel ignores strides (fused optimizers, indices of pools), reads past the end of an
               // expanded operand (batch_norm's backward), or because its gradient depends on strides (det)
  aligned      // contiguous and at storage offset 0, because the kernel reads the elements as a larger dtype
};

// The kinds of ops that passes recognise and rewrite.
enum class Form : uint8_t { other, view, permute, slice, select, cast };

struct Row {
  std::string_view op;
  std::string_view letters = {};                 // the rule as text, see letters.h; empty: `family` makes it
  Reduction reduction = Reduction::sum;          // of reduce factors, in rules made from `letters`
  OpRule (*family)(const Call& call) = nullptr;  // makes the rule, where it depends on the arguments of the call
  uint8_t arg = 1;   // the argument that the family reads: the dims that the op acts on, or how a loss is reduced
  uint8_t dims = 0;  // how many dims of an image are spatial (the last ones); 0: all but the first two
  Linearity linearity = Linearity::none;  // none: as the family set it
  uint64_t linear_inputs = ~uint64_t{0};  // see OpRule
  bool rounds =
      false;  // results of integer dtype are rounded, so not linear: rounding a sum is not summing rounded parts
  Localise localise = nullptr;
  uint8_t sizes = 0;  // the argument that holds the sizes of the result; read by the localise function `sizes`
  Expand expand = nullptr;
  const Stencil* stencil = nullptr;  // for an op whose results read windows of an operand: where the windows lie
  double flops = 1;                  // see OpRule::flops_per_element; matrix products have 2
  bool random = false;               // it draws random numbers
  bool constant_reals = false;       // floats decide a shape or what is computed, so they are recorded as constants
  MemoryUse memory = MemoryUse::fresh;
  MemoryUse (*memory_of)(const Call& call) = nullptr;  // where it depends on the arguments of the call
  Needs needs = Needs::any;
  Form form = Form::other;
  bool registered = false;  // a user registered it
};

// Pointwise ops of which all but the name is alike: how a partial value flows through them, and their use of memory.
struct PointwiseOps {
  OpRule (*family)(const Call& call);
  Linearity linearity;
  uint64_t linear_inputs;
  MemoryUse memory;
  std::span<const std::string_view> ops;
};

std::span<const Row> rows();                    // all rows, alphabetical; defined in table.cpp
std::span<const PointwiseOps> pointwise_ops();  // each list alphabetical; defined in table.cpp

// The row of this op under its full or its base name, or null.
const Row* find_row(std::string_view op);
// The row of the call's op. REQUIRES: it has one, else InternalError.
const Row& row_of(const Call& call);
// The form of the call's op; other for an op without a row.
Form form_of(const Call& call);

// The entry of an op in a map from names: under its full name, else under its base name, else end().
template <class Map>
auto find_named(Map& entries, std::string_view op) {
  const auto found = entries.find(op);
  return found == entries.end() ? entries.find(base_name(op)) : found;
}

}  // namespace spmdx::rules
