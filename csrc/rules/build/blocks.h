// SPDX-License-Identifier: Apache-2.0
// Blocks: expansions view a cut dim as two dims, [blocks, rows of a block], with one block for each part.
#pragma once
#include "rules/build/op_builder.h"

namespace spmdx::rules {

struct Blocks {
  size_t dim = 0;     // in the viewed shape `dim` numbers the blocks, and dim + 1 the rows of a block
  int64_t count = 1;  // 1: there is one part, or the number of parts does not divide the size of the dim
  int64_t size = 1;   // rows of a block
};

// The blocks of a dim: as many as it has parts, or as the mesh has devices where no cut of the dim is known.
Blocks blocks_of(OpBuilder& maths, ValueId value, size_t dim);

// The viewed shape, in which the dim is two dims.
Shape blocked(Shape shape, const Blocks& blocks);

// Emits a slice: rows `start` up to, not including, `stop` of a dim.
ValueId rows_between(OpBuilder& maths, ValueId value, size_t dim, int64_t start, int64_t stop);

// Emits the node as it was, for an expansion that gains nothing here; partition will gather its cut dim.
Values unchanged(OpBuilder& maths, const Node& node);

}  // namespace spmdx::rules
