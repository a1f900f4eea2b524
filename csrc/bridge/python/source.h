// SPDX-License-Identifier: Apache-2.0
// The user's file and line behind an op.
#pragma once
#include <string>
#include <vector>

#include "graph/graph.h"

namespace spmdx::bridge {

// Of the innermost Python frame outside torch and spmdx; inside a backward, of the forward op. Cheap: keeps the code
// object and instruction, resolves the line only when asked.
SourceId current_source();
std::string source_text(SourceId source);              // "train.py:41", or "" for 0
void set_libraries(std::vector<std::string> folders);  // whose code is not the user's; paths that end in a separator

}  // namespace spmdx::bridge
