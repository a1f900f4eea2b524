// SPDX-License-Identifier: Apache-2.0
// The kinds of error spmdx raises, and how a message is built from its three sentences.
#pragma once
#include <stdexcept>
#include <string>

namespace spmdx {

// The user's program is wrong: becomes spmdx.ShardingError (a ValueError) in Python.
struct ShardingError : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

// The world is wrong (a peer, a timeout): becomes spmdx.CommError (a RuntimeError).
struct CommError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// spmdx is wrong: becomes spmdx.InternalError; the message says that this is a bug in spmdx.
struct InternalError : std::logic_error {
  explicit InternalError(const std::string& what) : std::logic_error("this is a bug in spmdx: " + what) {}
};

// Throws InternalError when a fact spmdx itself guarantees does not hold.
inline void internal_check(bool holds, const char* what) {
  if (!holds) throw InternalError(what);
}
inline void internal_check(bool holds, const std::string& what) {
  if (!holds) throw InternalError(what);
}

}  // namespace spmdx
