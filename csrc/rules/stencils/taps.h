// SPDX-License-Identifier: Apache-2.0
// Taps: points that are weighted sums of a few rows each, as in interpolation and in padding that repeats rows.
#pragma once
#include <vector>

#include "graph/graph.h"

namespace spmdx::rules {

struct Tap {
  int64_t row = 0;  // of the field
  double weight = 1;
};
// Of every point, equally many.
using Taps = std::vector<std::vector<Tap>>;

// Of one spatial dim, exactly as PyTorch's kernels number them.
Taps taps_of(const Call& call, size_t spatial, size_t spatial_dims, int64_t field, int64_t points);

// Whether the op computes with the weights as they are: not of integers, which are interpolated in steps.
bool plain_taps(const Call& call);

// Whether points are made, and not the gradient of the field.
bool reads_by_tap(const Call& call);

// The same call with this dim left as it is: `rows` in and out, as its types say.
void leave_dim(Call& call, size_t spatial, size_t spatial_dims, int64_t rows);

}  // namespace spmdx::rules
