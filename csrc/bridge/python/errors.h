// SPDX-License-Identifier: Apache-2.0
// Errors of spmdx on their way through PyTorch, which would make every std::exception a RuntimeError.
#pragma once
#include <exception>
#include <string>

#include "graph/graph.h"

namespace spmdx::bridge {

// REQUIRES: called in a catch block. Rethrows what is being handled, errors of spmdx with their Python class.
[[noreturn]] void rethrow_for_python();

// Runs `body`; its errors leave as `rethrow_for_python` gives them.
template <class Body>
void with_python_errors(Body&& body) {
  try {
    body();
  } catch (...) {
    rethrow_for_python();
  }
}

// The exception of an op, led by the user's line and the op. Python's own exceptions stay as they are.
std::exception_ptr lead_error(std::exception_ptr error, SourceId source, const std::string& op);

}  // namespace spmdx::bridge
