// SPDX-License-Identifier: Apache-2.0
// Taps: stencils whose points are weighted sums of a few rows: interpolation, and padding that repeats rows.
#pragma once
#include <vector>

#include "graph/graph.h"

namespace spmdx::rules {

struct Tap {
  int64_t row = 0;  // of the field
  double weight = 1;
};
// One list per point; all lists are equally long.
using Taps = std::vector<std::vector<Tap>>;

// The taps along one spatial dim, with the rows and weights that PyTorch's kernels use, bit for bit.
Taps taps_of(const Call& call, size_t spatial, size_t spatial_dims, int64_t field, int64_t points);

// Whether the op computes with these weights. Linear and cubic interpolation of integers does not: it rounds.
bool plain_taps(const Call& call);

// Whether the op computes points from a field (forward), and not the gradient of a field.
bool reads_by_tap(const Call& call);

// Changes the arguments of the call so that it leaves spatial dim `spatial` unchanged. The caller sets that dim to
// `rows` rows in the types of operand and result.
void leave_dim(Call& call, size_t spatial, size_t spatial_dims, int64_t rows);

}  // namespace spmdx::rules
