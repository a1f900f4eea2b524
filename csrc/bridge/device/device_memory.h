// SPDX-License-Identifier: Apache-2.0
// The allocators that PyTorch asks of a device: of storages that no tensor has made, of statistics, of host memory.
#pragma once

namespace spmdx::bridge {

void register_memory();  // once, before the first tensor

}  // namespace spmdx::bridge
