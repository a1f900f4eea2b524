// SPDX-License-Identifier: Apache-2.0
// The kernels of stencils that are made of taps: interpolation and padding.
#pragma once
#include "bridge/backend/own_kernels.h"

namespace spmdx::bridge {

Compute prepare_taps(const Call& local);  // `local`: a call of spmdx.stencil

}  // namespace spmdx::bridge
