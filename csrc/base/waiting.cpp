// SPDX-License-Identifier: Apache-2.0
// Waiting: holds the function that waiting threads of this process call.
#include "base/waiting.h"

#include <atomic>

namespace spmdx {
namespace {

std::atomic<void (*)()> wait_check = nullptr;

}  // namespace

void set_wait_check(void (*check)()) { wait_check = check; }

void check_wait() {
  if (void (*check)() = wait_check.load()) check();
}

}  // namespace spmdx
