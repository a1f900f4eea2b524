// SPDX-License-Identifier: Apache-2.0
// What PyTorch asks of a device beside kernels.
#pragma once

namespace spmdx::bridge {

void register_hooks();  // once, before the first tensor

}  // namespace spmdx::bridge
