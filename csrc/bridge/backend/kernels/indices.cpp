// SPDX-License-Identifier: Apache-2.0
// Moves indices into a part of a dim, and checks them.
#include "bridge/backend/kernels/indices.h"

#include <ATen/Functions.h>

#include <string>

namespace spmdx::bridge {

at::Tensor outside_window(const at::Tensor& indices, int64_t start, int64_t extent) {
  return indices.lt(start).logical_or_(indices.ge(start + extent));
}

at::Tensor in_window(const at::Tensor& indices, int64_t start, int64_t extent, int64_t elsewhere) {
  return at::sub(indices, start).masked_fill_(outside_window(indices, start, extent), elsewhere);
}

void check_indices(const at::Tensor& indices, int64_t least, int64_t total, const char* what) {
  if (indices.numel() == 0) return;
  if (!indices.is_cpu()) {  // checked on the accelerator, so that the CPU does not wait
    at::_assert_async(indices.ge(least).logical_and_(indices.lt(total)).all(),
                      std::string("index out of range in self: ") + what + " expected indices from " +
                          std::to_string(least) + " to " + std::to_string(total - 1) +
                          ". Check the size that the indices point into.");
    return;
  }
  const auto [lowest, highest] = indices.aminmax();
  TORCH_CHECK_INDEX(lowest.item<int64_t>() >= least && highest.item<int64_t>() < total,
                    "index out of range in self: ", what, " got indices from ", lowest.item<int64_t>(), " to ",
                    highest.item<int64_t>(), ". Expected ", least, " to ", total - 1,
                    ". Check the size that the indices point into.");
}

}  // namespace spmdx::bridge
