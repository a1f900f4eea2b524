// SPDX-License-Identifier: Apache-2.0
// What is true of ATen's kernels alone, op by op. What an op means stands in its row, rules/table.cpp.
#pragma once
#include <cstdint>
#include <string_view>

namespace spmdx::bridge {

// What the CPU's kernel of an op that writes accepts, where it is not what kernels of elements accept.
enum class Overlap : uint8_t {
  elements,  // no repeated elements; operands that are written whole, or not at all
  apart,     // operands must not share a byte with what is written
  unchecked  // any operand, since the kernel works on copies or nobody looks
};

// What an op does at indices.
enum class Access : uint8_t { none, read, write };

struct AtenFacts {
  std::string_view op;
  Overlap overlap = Overlap::elements;
  Access window = Access::none;  // of an op that spmdx.window may do
  bool constant_reals = false;   // as in Row, of an op without one
  bool indexes = false;          // takes index tensors, which may be on the host
  bool iterated = true;          // written element by element of all operands, where it is pointwise by its rule
  bool back_to_front = false;    // the kernel takes its two operands in the other order
  bool meta_differs = false;     // the meta kernel tells other sizes, of what only a backward reads
  bool composed = false;         // ATen's own kernel puts it together from ops that have rules
};

// Of an op by its full or its base name; of an op that is not listed, what is usual. Never changes.
const AtenFacts& facts_of(std::string_view op);

}  // namespace spmdx::bridge
