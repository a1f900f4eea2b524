// SPDX-License-Identifier: Apache-2.0
// Waiting: waits that may be broken off while nothing has come of them yet, as by Ctrl-C in the program's thread.
#pragma once
#include <chrono>
#include <condition_variable>
#include <mutex>

namespace spmdx {

// `check` is called now and then by whoever waits, with none of its locks held; what it throws ends the wait.
void set_wait_check(void (*check)());
void check_wait();

// Waits until `ready`, which is asked with the lock held. Throws what the check throws, with the lock given up.
template <class Ready>
void wait_until_ready(std::condition_variable& changed, std::unique_lock<std::mutex>& lock, Ready ready) {
  constexpr std::chrono::milliseconds kBetweenChecks{50};
  while (!changed.wait_for(lock, kBetweenChecks, ready)) {
    lock.unlock();
    check_wait();
    lock.lock();
  }
}

}  // namespace spmdx
