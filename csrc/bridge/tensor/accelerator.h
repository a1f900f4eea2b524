// SPDX-License-Identifier: Apache-2.0
// Makes PyTorch take the device for the machine's accelerator from its first use on, and not before.
#pragma once

#include <atomic>

namespace spmdx::bridge {

namespace detail {
inline std::atomic<bool> used{false};
}

// Called when a tensor of the device is made, and when autograd asks for the device's stream.
inline void note_device_use() noexcept { detail::used.store(true, std::memory_order_relaxed); }

// Lets PyTorch see the device as the accelerator only from its first use on. Called once, at the registration. Has no
// effect if PyTorch was linked in a way that we do not know: then the device is the accelerator from the import on.
void be_accelerator_once_used();

}  // namespace spmdx::bridge
