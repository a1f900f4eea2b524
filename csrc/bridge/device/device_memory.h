// SPDX-License-Identifier: Apache-2.0
// The allocators that PyTorch asks of a device: for storages made without a tensor, statistics, and CPU memory.
#pragma once

namespace spmdx::bridge {

void register_memory();  // once, before the first tensor

}  // namespace spmdx::bridge
