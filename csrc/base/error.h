// SPDX-License-Identifier: Apache-2.0
// The exceptions that spmdx throws: the user's mistakes, failures between processes, and bugs of spmdx.
#pragma once
#include <concepts>
#include <stdexcept>
#include <string>

namespace spmdx {

// The user's program is wrong. Becomes spmdx.ShardingError (a ValueError) in Python. Its message has three sentences:
// what is wrong, what is expected, how to repair it.
struct ShardingError : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

// Another process has failed, or does not answer in time. Becomes spmdx.CommError (a RuntimeError) in Python.
struct CommError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// spmdx is wrong. Becomes spmdx.InternalError in Python; the message says that this is a bug in spmdx.
struct InternalError : std::logic_error {
  explicit InternalError(const std::string& what) : std::logic_error("this is a bug in spmdx: " + what) {}
};

// Throws InternalError if `holds` is false. For facts that spmdx itself guarantees.
inline void internal_check(bool holds, const char* what) {
  if (!holds) throw InternalError(what);
}
inline void internal_check(bool holds, const std::string& what) {
  if (!holds) throw InternalError(what);
}
// The same, of a text that is only made where it is needed.
template <std::invocable What>
void internal_check(bool holds, const What& what) {
  if (!holds) throw InternalError(what());
}

}  // namespace spmdx
