// SPDX-License-Identifier: Apache-2.0
// The stencils of interpolation and padding.
#pragma once
#include "bridge/backend/own_kernels.h"

namespace spmdx::bridge {

Compute prepare_taps(const Call& local);  // of spmdx.stencil

}  // namespace spmdx::bridge
