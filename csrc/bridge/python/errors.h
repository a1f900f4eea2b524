// SPDX-License-Identifier: Apache-2.0
// Gives errors of spmdx their Python classes: PyTorch by itself turns every std::exception into a RuntimeError.
#pragma once
#include <exception>
#include <string>

#include "graph/graph.h"

namespace spmdx::bridge {

// Rethrows the exception that is being handled; errors of spmdx get their Python class. REQUIRES: a catch block.
[[noreturn]] void rethrow_for_python();

// Runs `body`; its exceptions are rethrown by rethrow_for_python.
template <class Body>
void with_python_errors(Body&& body) {
  try {
    body();
  } catch (...) {
    rethrow_for_python();
  }
}

// Rethrows the exception that is being handled if no code may keep it from the program: Ctrl-C, or its end, that came
// while PyTorch ran Python. REQUIRES: a catch block.
void let_interrupts_pass();

// `error` with the user's line and the name of the op before its message. Python's own exceptions stay as they are.
std::exception_ptr lead_error(std::exception_ptr error, SourceId source, const std::string& op);

}  // namespace spmdx::bridge
