// SPDX-License-Identifier: Apache-2.0
// Pinned memory: host memory that copies of the simulated CUDA device read and write when their stream gets there.
#include <c10/core/Allocator.h>

#include <map>

#include "simulated.h"

namespace simulated {
namespace {

// Host memory for asynchronous copies. It lives until the last copy that uses it has run.
class PinnedMemory final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    std::shared_ptr<char> block(new char[bytes + 1], std::default_delete<char[]>());
    char* address = block.get();
    std::lock_guard lock(mutex_);
    blocks_[address] = {std::move(block), bytes + 1};
    return {address, address, &PinnedMemory::free, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &PinnedMemory::free; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }
  std::shared_ptr<void> keep(const void* address) {
    std::lock_guard lock(mutex_);
    auto after = blocks_.upper_bound(static_cast<const char*>(address));
    if (after == blocks_.begin()) return nullptr;
    const auto& [start, block] = *--after;
    return address < start + block.size ? block.memory : nullptr;
  }
  static PinnedMemory& instance() {
    static auto* allocator = new PinnedMemory;
    return *allocator;
  }

 private:
  static void free(void* address) {
    std::lock_guard lock(instance().mutex_);
    instance().blocks_.erase(static_cast<const char*>(address));
  }
  struct Pinned {
    std::shared_ptr<char> memory;
    size_t size;
  };
  std::mutex mutex_;
  std::map<const char*, Pinned> blocks_;
};

}  // namespace

c10::Allocator* pinned_allocator() { return &PinnedMemory::instance(); }
std::shared_ptr<void> keep_pinned(const void* address) { return PinnedMemory::instance().keep(address); }

}  // namespace simulated
