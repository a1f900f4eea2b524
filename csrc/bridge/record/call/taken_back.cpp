// SPDX-License-Identifier: Apache-2.0
// PyTorch's dispatcher tells its listeners of each op that goes.
#include "bridge/record/call/taken_back.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <utility>

namespace spmdx::bridge {
namespace {

// Called with the dispatcher's mutex, so it takes no lock but its own, and tells nobody.
class Listener final : public c10::OpRegistrationListener {
 public:
  void onOperatorRegistered(const c10::OperatorHandle&) override {}

  void onOperatorDeregistered(const c10::OperatorHandle& op) override {
    std::lock_guard lock(mutex_);
    gone_.push_back(&op.schema());
    any_ = true;
  }

  std::vector<const void*> take() {
    if (!any_) return {};
    std::lock_guard lock(mutex_);
    any_ = false;
    return std::exchange(gone_, {});
  }

 private:
  std::mutex mutex_;  // guards gone_
  std::vector<const void*> gone_;
  std::atomic<bool> any_ = false;
};

Listener& listener() {
  static Listener* instance = [] {
    auto owned = std::make_unique<Listener>();
    Listener* made = owned.get();
    // Never taken away again: the dispatcher owns it until the process ends.
    new c10::RegistrationHandleRAII(c10::Dispatcher::singleton().addRegistrationListener(std::move(owned)));
    return made;
  }();
  return *instance;
}

}  // namespace

std::vector<const void*> schemas_taken_back() { return listener().take(); }

}  // namespace spmdx::bridge
