// SPDX-License-Identifier: Apache-2.0
// What sizes and strides say by themselves.
#pragma once
#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <vector>

namespace spmdx::bridge {

std::vector<int64_t> contiguous_strides(const std::vector<int64_t>& sizes);
// False: no two places of this layout have the same address. True may be wrong for large layouts whose dims interleave.
bool may_repeat(c10::IntArrayRef sizes, c10::IntArrayRef strides);

}  // namespace spmdx::bridge
