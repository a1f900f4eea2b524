// SPDX-License-Identifier: Apache-2.0
// Leavable: what the work and who waits for it share.
#include "bridge/world/leavable.h"

#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>

namespace spmdx::bridge {
namespace {

// A leaf lock.
struct Ending {
  std::mutex mutex;
  std::condition_variable changed;
  bool ended = false, aborted = false;  // guarded by mutex, as is the next
  std::exception_ptr error;
};

class Leavable final : public c10d::Work {
 public:
  explicit Leavable(const c10::intrusive_ptr<c10d::Work>& work) {
    work->getFuture()->addCallback([ending = ending_](c10::ivalue::Future& future) {
      std::lock_guard lock(ending->mutex);
      ending->ended = true;
      if (future.hasError()) ending->error = future.exception_ptr();
      ending->changed.notify_all();
    });
  }

  bool isCompleted() override {
    std::lock_guard lock(ending_->mutex);
    return ending_->ended || ending_->aborted;
  }

  bool wait(std::chrono::milliseconds) override {
    std::unique_lock lock(ending_->mutex);
    ending_->changed.wait(lock, [this] { return ending_->ended || ending_->aborted; });
    if (ending_->error) std::rethrow_exception(ending_->error);
    return ending_->ended;
  }

  void abort() override {
    std::lock_guard lock(ending_->mutex);
    ending_->aborted = true;
    ending_->changed.notify_all();
  }

 private:
  const std::shared_ptr<Ending> ending_ = std::make_shared<Ending>();
};

}  // namespace

c10::intrusive_ptr<c10d::Work> leavable(const c10::intrusive_ptr<c10d::Work>& work) {
  return c10::make_intrusive<Leavable>(work);
}

}  // namespace spmdx::bridge
