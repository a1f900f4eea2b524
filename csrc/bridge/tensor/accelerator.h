// SPDX-License-Identifier: Apache-2.0
// When PyTorch takes the device for the machine's accelerator: from its first use on.
#pragma once

#include <atomic>

namespace spmdx::bridge {

namespace detail {
inline std::atomic<bool> used{false};
}

// A tensor of the device is made, or autograd asks for the device's stream.
inline void note_device_use() noexcept { detail::used.store(true, std::memory_order_relaxed); }

// Lets PyTorch see the device as an accelerator only from its first use on. Once, at the registration. Where
// PyTorch was linked in a way that we do not know, nothing is done, and it sees the device from the import on.
void be_accelerator_once_used();

}  // namespace spmdx::bridge
