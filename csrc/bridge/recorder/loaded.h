// SPDX-License-Identifier: Apache-2.0
// Loaded annotations: what a file says of data holds until the program says something else.
#pragma once
#include "bridge/recorder/recorder_state.h"

namespace spmdx::bridge {

// An annotation that was loaded ends where ops join its tensor to one that is annotated for another mesh, as the state
// of an optimizer to its parameters. The data moves to that mesh. Holds the recorder's lock.
void end_loaded_annotations(RecorderState& state);

}  // namespace spmdx::bridge
