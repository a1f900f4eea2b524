// SPDX-License-Identifier: Apache-2.0
// AtenBackend: buffers are at::Tensor, kernels are prepared ATen calls.
#pragma once
#include "runtime/data/backend.h"

namespace spmdx::bridge {

// The process-wide instance.
Backend& aten_backend();

}  // namespace spmdx::bridge
