// SPDX-License-Identifier: Apache-2.0
// Signals: Ctrl-C ends a wait of the thread that runs the program.
#pragma once

namespace spmdx::bridge {

void heed_signals();  // from now on waits check for signals; called once

}  // namespace spmdx::bridge
