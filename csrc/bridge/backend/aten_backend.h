// SPDX-License-Identifier: Apache-2.0
// AtenBackend: the Backend of the runtime, whose buffers are at::Tensor and whose kernels call ATen.
#pragma once
#include "runtime/data/backend.h"

namespace spmdx::bridge {

// The one instance of the process. It is never destroyed.
Backend& aten_backend();

// What Backend::compilers of this one gives from now on; null: none. Any thread.
void set_compilers(std::shared_ptr<const Compilers> compilers);

}  // namespace spmdx::bridge
