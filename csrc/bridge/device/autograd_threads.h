// SPDX-License-Identifier: Apache-2.0
// The thread in which autograd runs what belongs to the device.
#pragma once

namespace spmdx::bridge {

// A tensor of the device takes part in a graph of autograd: there is a thread for it from now on. Never throws.
void give_autograd_a_thread() noexcept;
// At the end of the program, without the GIL, in no forked child: until that thread has let go of what Python made. It
// would ask for the GIL while Python tears down, which ends a thread in a way that aborts the process.
void wait_for_autograd();

}  // namespace spmdx::bridge
