// SPDX-License-Identifier: Apache-2.0
// What torch.set_num_threads and torch.set_flush_denormal set: PyTorch keeps both by thread.
#pragma once
#include <cstdint>

namespace spmdx::bridge {

// Those of the calling thread.
int64_t settings_of_thread();
// The calling thread has them from now on.
void use_settings(int64_t settings);

}  // namespace spmdx::bridge
