// SPDX-License-Identifier: Apache-2.0
// PatientStore: calls that do not come back where they fail.
#include "bridge/world/patient_store.h"

#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace spmdx::bridge {
namespace {

using std::chrono::milliseconds;
using Keys = std::vector<std::string>;
using Bytes = std::vector<uint8_t>;

constexpr std::chrono::hours kFar{24 * 7};  // who waits for the thread has a limit of its own

[[noreturn]] void stay() {
  while (true) std::this_thread::sleep_for(std::chrono::hours(1));
}

class PatientStore final : public c10d::Store {
 public:
  explicit PatientStore(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}

  c10::intrusive_ptr<c10d::Store> clone() {  // of c10d::Store, in versions of PyTorch that have it
    return c10::make_intrusive<PatientStore>(store_);
  }
  void set(const std::string& key, const Bytes& value) override {
    call([&] { store_->set(key, value); });
  }
  Bytes compareSet(const std::string& key, const Bytes& expected, const Bytes& desired) override {
    return call([&] { return store_->compareSet(key, expected, desired); });
  }
  Bytes get(const std::string& key) override {
    wait({key});
    return call([&] { return store_->get(key); });
  }
  int64_t add(const std::string& key, int64_t value) override {
    return call([&] { return store_->add(key, value); });
  }
  bool deleteKey(const std::string& key) override {
    return call([&] { return store_->deleteKey(key); });
  }
  bool check(const Keys& keys) override {
    return call([&] { return store_->check(keys); });
  }
  int64_t getNumKeys() override {
    return call([&] { return store_->getNumKeys(); });
  }
  void wait(const Keys& keys) override {
    call([&] { store_->wait(keys, kFar); });
  }
  void wait(const Keys& keys, const milliseconds&) override { wait(keys); }
  const milliseconds& getTimeout() const noexcept override { return store_->getTimeout(); }
  void setTimeout(const milliseconds& timeout) override { store_->setTimeout(timeout); }

 private:
  template <class Work>
  static auto call(const Work& work) -> decltype(work()) {
    try {
      return work();
    } catch (const std::exception&) {
      stay();
    }
  }

  const c10::intrusive_ptr<c10d::Store> store_;
};

}  // namespace

c10::intrusive_ptr<c10d::Store> patient(const c10::intrusive_ptr<c10d::Store>& store) {
  return c10::make_intrusive<PatientStore>(store);
}

}  // namespace spmdx::bridge
