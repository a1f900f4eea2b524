// SPDX-License-Identifier: Apache-2.0
// Comm of a program that is one process.
#include "runtime/data/comm.h"

#include "base/error.h"

namespace spmdx {

void Comm::exchange(std::span<const Message> sends, std::span<const Message> receives, const Progress&) {
  internal_check(sends.empty() && receives.empty(), "a message to another process, where there is one");
}

ExchangeRef Comm::begin(std::span<const Message> sends, std::span<const Message> receives, const Progress& at) {
  exchange(sends, receives, at);
  return nullptr;
}

void Comm::call(std::span<const NativeCall> calls, const Progress&) {
  internal_check(calls.empty(), "a collective of several processes, where there is one");
}

void Comm::announce(uint64_t) {}

void Comm::agree(const Progress&, const std::function<std::string()>&) {}

void Comm::failed(const Progress&, std::exception_ptr, bool) {}

}  // namespace spmdx
