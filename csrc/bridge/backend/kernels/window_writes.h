// SPDX-License-Identifier: Apache-2.0
// Writes of an indexing op to one part of a dim, in the memory that is there.
#pragma once
#include "bridge/backend/own_kernels.h"

namespace spmdx::bridge {

// What an indexing op sees of the dim that its indices point into: the rows [start, start + extent) of `total`. Of
// several dims that are indexed it is the first one.
struct Window {
  std::string op;
  size_t index = 0;  // the operand that holds the indices
  int64_t dim = 0, start = 0, total = 0, extent = 0;
  int64_t place = 0;       // of index and index_put: which dim of what is read or written is the first of the indices',
  int64_t index_rank = 0;  // and how many dims these have together
};

// Throws for wrong indices. Negative ones count from the end in index and index_put, and are wrong in other ops.
at::Tensor checked_indices(const Window& window, const at::Tensor& given);

// Does those indices that point into the window, in their order. `inner`: the call of the indexing op. Empty: such a
// write needs all of them. The number of indices is read, for which a GPU would be waited for.
Write write_in_window(const Window& window, const Call& inner);

}  // namespace spmdx::bridge
