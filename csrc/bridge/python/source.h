// SPDX-License-Identifier: Apache-2.0
// The user's file and line that an op comes from.
#pragma once
#include <Python.h>

#include <string>
#include <vector>

#include "graph/graph.h"

namespace spmdx::bridge {

// The source of the op that is called now: the innermost Python frame outside of torch and spmdx; in a backward pass,
// the source of the forward op. Cheap: only source_text looks for file and line.
SourceId current_source();
std::string source_text(SourceId source);              // "train.py:41", or "" for 0
void set_libraries(std::vector<std::string> folders);  // of code that is not the user's; paths end in a separator
// A Python function from the path of a file to what messages call it. Takes a reference, for good. REQUIRES: the GIL.
void set_name_of_files(PyObject* function);

}  // namespace spmdx::bridge
