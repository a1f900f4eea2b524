// SPDX-License-Identifier: Apache-2.0
// Contiguous strides, and whether strides make places of a tensor share an address.
#pragma once
#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <vector>

namespace spmdx::bridge {

// Row-major strides; a size of 0 counts as 1, as in PyTorch.
std::vector<int64_t> contiguous_strides(const std::vector<int64_t>& sizes);
// Whether two places of this layout have the same address. True may be wrong for a large layout whose dims interleave.
bool may_repeat(c10::IntArrayRef sizes, c10::IntArrayRef strides);

}  // namespace spmdx::bridge
