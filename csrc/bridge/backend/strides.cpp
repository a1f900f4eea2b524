// SPDX-License-Identifier: Apache-2.0
// Computes contiguous strides, and looks for places of one layout that have the same address.
#include "bridge/backend/strides.h"

#include <c10/util/SmallVector.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <utility>

namespace spmdx::bridge {
namespace {

using Dims = c10::SmallVector<std::pair<int64_t, int64_t>, 6>;  // stride and size
constexpr int64_t kMostCounted = 1 << 16;

bool count_repeats(const Dims& dims) {
  std::vector<int64_t> places{0};
  for (const auto& [stride, size] : dims) {
    const size_t before = places.size();
    for (int64_t i = 1; i < size; ++i)
      for (size_t at = 0; at < before; ++at) places.push_back(places[at] + i * stride);
  }
  std::sort(places.begin(), places.end());
  return std::adjacent_find(places.begin(), places.end()) != places.end();
}

}  // namespace

std::vector<int64_t> contiguous_strides(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> strides(sizes.size());
  int64_t step = 1;
  for (size_t d = sizes.size(); d-- > 0;) {
    strides[d] = step;
    step *= std::max<int64_t>(sizes[d], 1);
  }
  return strides;
}

bool may_repeat(c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  Dims dims;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 0) return false;
    if (sizes[d] > 1) dims.emplace_back(strides[d], sizes[d]);
  }
  std::sort(dims.begin(), dims.end());
  int64_t reach = 0;  // the largest address that dims of smaller strides reach
  bool interleaved = false;
  for (const auto& [stride, size] : dims) {
    if (stride == 0) return true;
    interleaved |= stride <= reach;
    reach += stride * (size - 1);
  }
  return interleaved && (c10::multiply_integers(sizes) > kMostCounted || count_repeats(dims));
}

}  // namespace spmdx::bridge
