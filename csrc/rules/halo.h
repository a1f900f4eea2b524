// SPDX-License-Identifier: Apache-2.0
// How far a convolution reaches: what a part of a cut spatial dim needs of its neighbours.
#pragma once
#include <optional>

#include "graph/graph.h"

namespace spmdx {

struct Reach {
  int64_t before = 0, after = 0;
  bool local() const { return before == 0 && after == 0; }
};

// Of spatial dim `spatial`, where result and input have the same places; nothing where a place has another number in
// the result, or the op is transposed. `first` is the argument that holds the strides: 3, in the backward 4.
std::optional<Reach> reach_of(const Call& call, size_t first, const Shape& x, const Shape& weight, const Shape& result,
                              size_t spatial);

}  // namespace spmdx
