// SPDX-License-Identifier: Apache-2.0
// Which dtypes are summed: the others are never held as parts of a sum.
#pragma once
#include <algorithm>
#include <array>

#include "base/types.h"

namespace spmdx::rules {

// 8-bit floats would round, or overflow in, every part, and PyTorch adds neither them nor wide unsigned numbers.
inline bool is_summed(DType dtype) {
  constexpr std::array kNever = {DType::f8e4m3, DType::f8e5m2, DType::u16, DType::u32, DType::u64};
  return std::find(kNever.begin(), kNever.end(), dtype) == kNever.end();
}

}  // namespace spmdx::rules
