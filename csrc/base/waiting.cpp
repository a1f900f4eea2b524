// SPDX-License-Identifier: Apache-2.0
// Waiting: holds the function that waiting threads of this process call, and what a thread may not wait for.
#include "base/waiting.h"

#include <atomic>
#include <stdexcept>
#include <utility>

namespace spmdx {
namespace {

std::atomic<void (*)()> wait_check = nullptr;
thread_local const char* why_not = nullptr;  // null: the thread may wait

}  // namespace

void set_wait_check(void (*check)()) { wait_check = check; }

void check_wait() {
  if (void (*check)() = wait_check.load()) check();
}

NoWaiting::NoWaiting(const char* why) : before_(std::exchange(why_not, why)) {}
NoWaiting::~NoWaiting() { why_not = before_; }

void require_may_wait() {
  if (why_not) throw std::runtime_error(why_not);
}

}  // namespace spmdx
