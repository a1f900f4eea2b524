// SPDX-License-Identifier: Apache-2.0
// Row: all that is known of one op. The rows themselves are table.cpp, which alone knows every family.
#pragma once
#include <span>
#include <string_view>

#include "rules/rule/rule.h"

namespace spmdx::rules {

struct Stencil;  // stencil.h

// Whether the result of an op has memory of its own.
enum class MemoryUse : uint8_t {
  fresh,    // memory of its own
  view,     // that of the first operand, in another order, with gaps or repeats
  part,     // that of the first operand, rows of the one dim that argument 1 names
  reshape,  // that of the first operand, if its elements lie in row-major order; else a copy
  in_place  // may be written over the first operand by a variant with a `_`, where nobody reads that any more
};

// How operands have to lie for the op's kernel.
enum class Needs : uint8_t {
  any,
  contiguous,  // as the tracer's user saw them: the kernel walks them by address alone (fused optimizers, indices of
               // pools), reads an expanded one past its end (batch_norm's backward), or the formula of its gradient
               // asks how its operand lies (det)
  aligned,     // the same, and the first element where one of the larger ones may begin that the kernel sees them as
  unrepeated   // no element of the first in several places: it is copied as it lies, and the copy written to
};

// What passes recognise an op as.
enum class Form : uint8_t { other, view, permute, slice, select, cast };

struct Row {
  std::string_view op;
  std::string_view letters = {};                 // see letters.h; empty: the family says
  Reduction reduction = Reduction::sum;          // of the factors that only operands have
  OpRule (*family)(const Call& call) = nullptr;  // a rule that depends on the attributes of the call
  uint8_t arg = 1;   // the argument a family reads: the dims that the op acts on, or how a loss is reduced
  uint8_t dims = 0;  // how many of an image's dims are spatial, the last ones; 0: all but two
  Linearity linearity = Linearity::none;  // what the family says where this is none
  uint64_t linear_inputs = ~uint64_t{0};
  bool rounds = false;  // integers, so that those are not linear: a rounded sum is not the sum of rounded parts
  Localise localise = nullptr;
  uint8_t sizes = 0;  // the argument that holds the sizes of the result, for the localise function of that name
  Expand expand = nullptr;
  const Stencil* stencil = nullptr;  // how windows lie, of an op whose results read windows of an operand
  double flops = 1;                  // per element; matrix products have 2
  bool random = false;
  bool constant_reals = false;  // floats decide a shape or what is computed: they are recorded as constants
  MemoryUse memory = MemoryUse::fresh;
  Needs needs = Needs::any;
  Form form = Form::other;
  bool registered = false;  // a user's
};

// Pointwise ops that need no more than their name, by how a partial value passes through them.
struct PointwiseOps {
  OpRule (*family)(const Call& call);
  Linearity linearity;
  uint64_t linear_inputs;
  MemoryUse memory;
  std::span<const std::string_view> ops;
};

std::span<const Row> rows();                    // table.cpp, alphabetical
std::span<const PointwiseOps> pointwise_ops();  // table.cpp, each list alphabetical

// The row of this op under its full or its base name, or null.
const Row* find_row(std::string_view op);
// REQUIRES: there is one.
const Row& row_of(const Call& call);
Form form_of(const Call& call);

// An op's entry of a map under its full name, or else its base name.
template <class Map>
auto find_named(Map& entries, std::string_view op) {
  const auto found = entries.find(op);
  return found == entries.end() ? entries.find(base_name(op)) : found;
}

}  // namespace spmdx::rules
