// SPDX-License-Identifier: Apache-2.0
// The thread in which autograd runs backward ops of the device.
#pragma once

namespace spmdx::bridge {

// Makes sure that autograd has a thread for the device. Called when autograd asks for its stream. Never throws.
void give_autograd_a_thread() noexcept;
// Waits, at most a second, until that thread holds no Python objects any more. If it released them while Python shuts
// down, it would ask for the GIL, which would abort the process. Called at the end of the program. REQUIRES: this
// thread does not hold the GIL; the process is not a forked child.
void wait_for_autograd();

}  // namespace spmdx::bridge
