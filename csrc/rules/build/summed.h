// SPDX-License-Identifier: Apache-2.0
// Which dtypes may be partial sums, so that devices each hold a term.
#pragma once
#include <algorithm>
#include <array>

#include "base/types.h"

namespace spmdx::rules {

// False for 8-bit floats, of which every term would be rounded or overflow, and for unsigned integers of 16 bits and
// more: PyTorch can add neither of them.
inline bool is_summed(DType dtype) {
  constexpr std::array kNever = {DType::f8e4m3, DType::f8e5m2, DType::u16, DType::u32, DType::u64};
  return std::find(kNever.begin(), kNever.end(), dtype) == kNever.end();
}

}  // namespace spmdx::rules
