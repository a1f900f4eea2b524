// SPDX-License-Identifier: Apache-2.0
// A cut dim seen as blocks, one a part.
#pragma once
#include "rules/build/op_builder.h"

namespace spmdx::rules {

struct Blocks {
  size_t dim = 0;     // of the blocks; dim + 1 is within one
  int64_t count = 1;  // 1: the dim cannot be seen so
  int64_t size = 1;
};

// As many blocks as the operand's dim has parts; as the mesh has devices where that is not known.
Blocks blocks_of(OpBuilder& maths, ValueId value, size_t dim);

Shape blocked(Shape shape, const Blocks& blocks);

// Rows `start` to `stop` of a dim.
ValueId rows_between(OpBuilder& maths, ValueId value, size_t dim, int64_t start, int64_t stop);

// The node as it was: its dim will be gathered.
Values unchanged(OpBuilder& maths, const Node& node);

}  // namespace spmdx::rules
