// SPDX-License-Identifier: Apache-2.0
// Waiting: waits that a check may interrupt, so that Ctrl-C in the program's thread ends them, and that are errors
// where nothing could end them.
#pragma once
#include <chrono>
#include <condition_variable>
#include <mutex>

namespace spmdx {

// Sets the check of this process. A waiting thread calls it every 50 ms, after it has released the lock of the wait; an
// exception of the check ends the wait.
void set_wait_check(void (*check)());
// Calls the check, if there is one.
void check_wait();

// While it lives its thread waits for nothing: a wait that would block throws std::runtime_error with these words.
class NoWaiting {
 public:
  explicit NoWaiting(const char* why);
  ~NoWaiting();
  NoWaiting(const NoWaiting&) = delete;
  NoWaiting& operator=(const NoWaiting&) = delete;

 private:
  const char* before_;
};
void require_may_wait();

// Waits until `ready` returns true, which is called with the lock held. Returns with the lock held; if the check
// throws, the lock is released.
template <class Ready>
void wait_until_ready(std::condition_variable& changed, std::unique_lock<std::mutex>& lock, Ready ready) {
  constexpr std::chrono::milliseconds kBetweenChecks{50};
  if (!ready()) require_may_wait();
  while (!changed.wait_for(lock, kBetweenChecks, ready)) {
    lock.unlock();
    check_wait();
    lock.lock();
  }
}

}  // namespace spmdx
