// SPDX-License-Identifier: Apache-2.0
// Facts about ATen's own kernels, op by op. What an op means is told by its row in rules/table.cpp.
#pragma once
#include <cstdint>
#include <string_view>

namespace spmdx::bridge {

// Which operands may share memory with the tensor that an op writes to, so that the CPU's kernel accepts them.
enum class Overlap : uint8_t {
  elements,  // an operand that shares all of the written memory: kernels that go element by element
  apart,     // none, but for the written tensor itself
  unchecked  // any operand: the kernel works on copies, or PyTorch does not check
};

// Whether an op that takes indices reads or writes there.
enum class Access : uint8_t { none, read, write };

struct AtenFacts {
  std::string_view op;
  Overlap overlap = Overlap::elements;
  Access window = Access::none;  // how spmdx.window runs the op; none: it cannot
  bool constant_reals = false;   // as Row::constant_reals, for an op without a row
  bool indexes = false;          // takes index tensors, which may lie on the CPU
  bool iterated = true;          // if pointwise by its rule: its kernel is one TensorIterator over all operands
  bool back_to_front = false;    // the TensorIterator takes the two operands in the other order
  bool meta_differs = false;     // the meta kernel gives other sizes for results that only a backward reads
  bool any_dim = false;          // the meta kernel does not check whether the operand has the dim `dim`
  bool composed = false;         // ATen's own kernel calls ops that have rules: those are recorded
};

// The facts of an op, found by its full or its base name; the defaults for an op that is not listed. Valid forever.
const AtenFacts& facts_of(std::string_view op);

}  // namespace spmdx::bridge
