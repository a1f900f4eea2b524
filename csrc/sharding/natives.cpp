// SPDX-License-Identifier: Apache-2.0
// Natives: sums that are the same sums.
#include "sharding/natives.h"

namespace spmdx {

bool adds_natively(DType dtype, Reduction reduction) {
  const bool added_alike = dtype == DType::f32 || dtype == DType::f64 || dtype == DType::i32 || dtype == DType::i64;
  return added_alike && reduction == Reduction::sum;
}

}  // namespace spmdx
