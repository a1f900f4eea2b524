// SPDX-License-Identifier: Apache-2.0
// What PyTorch asks of a device besides kernels: its guard, and hooks for memory and generators.
#pragma once

namespace spmdx::bridge {

void register_hooks();  // once, before the first tensor

}  // namespace spmdx::bridge
