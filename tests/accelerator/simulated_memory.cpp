// SPDX-License-Identifier: Apache-2.0
// Memory of the simulated CUDA device: mapped twice, freed in the order of streams.
#include <c10/core/Allocator.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <vector>

#include "simulated.h"

namespace simulated {
namespace {

constexpr size_t kDeviceBytes = size_t{1} << 34;  // address space; pages come when they are touched
constexpr size_t kArenaBytes = kDeviceBytes * kMostDevices;
constexpr int kPoison = 0xFF;  // NaN, or -1

// One file, mapped twice: tensors hold addresses of a mapping without access, kernels use the other.
struct Arena {
  char* device;
  char* host;

  Arena() {
    const int file = memfd_create("simulated_cuda", MFD_CLOEXEC);
    TORCH_CHECK(file >= 0 && ftruncate(file, kArenaBytes) == 0, "no memory for the simulated device");
    device = map(file, PROT_NONE);
    host = map(file, PROT_READ | PROT_WRITE);
    close(file);
  }
  static char* map(int file, int access) {
    void* at = mmap(nullptr, kArenaBytes, access, MAP_SHARED | MAP_NORESERVE, file, 0);
    TORCH_CHECK(at != MAP_FAILED, "no address space for the simulated device");
    return static_cast<char*>(at);
  }
};

const Arena& arena() {
  static const auto* mapped = new Arena;
  return *mapped;
}

// As CUDA's caching allocator rounds.
size_t rounded(size_t bytes) {
  const size_t unit = bytes <= size_t{1} << 20 ? 512 : size_t{2} << 20;
  return (bytes + unit - 1) / unit * unit;
}

struct Block {
  char* address;
  size_t size;
  c10::DeviceIndex device;
  Queue* owner;                 // the stream that was current when it was allocated
  std::vector<Queue*> users{};  // other streams, by record_stream
};

struct Freed {
  Block* block;
  std::vector<Ticket> users;
};

class Memory final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override { return &Memory::free; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    auto work = [to = host_address(to), from = host_address(from), bytes] { std::memcpy(to, from, bytes); };
    current_queue(c10::Device(kDevice, device_of_address(from))).enqueue("memcpy", work);
  }
  void record_use(const c10::DataPtr& memory, Queue& user);
  static void free(void* context);

  std::mutex mutex;
  std::array<int64_t, kMostDevices> live{};

 private:
  Block* carve(size_t size, c10::DeviceIndex device, Queue* owner);
  void recycle(Block* block);
  void recycle_what_is_unused();

  std::array<size_t, kMostDevices> used_{};
  std::map<std::pair<Queue*, size_t>, std::vector<Block*>> free_;
  std::vector<Freed> freed_;  // still in use by other streams
};

Memory& memory() {
  static auto* allocator = new Memory;
  return *allocator;
}

c10::DataPtr Memory::allocate(size_t bytes) {
  const c10::Device device = c10::impl::getDeviceGuardImpl(kDevice)->getDevice();
  if (bytes == 0) return {nullptr, nullptr, &Memory::free, device};
  const size_t size = rounded(bytes);
  Queue* owner = &current_queue(device);
  std::lock_guard lock(mutex);
  recycle_what_is_unused();
  auto& blocks = free_[{owner, size}];
  Block* block = nullptr;
  if (blocks.empty()) {
    block = carve(size, device.index(), owner);
  } else {
    block = blocks.back();
    blocks.pop_back();
  }
  live.at(device.index()) += static_cast<int64_t>(size);
  return {block->address, block, &Memory::free, device};
}

Block* Memory::carve(size_t size, c10::DeviceIndex device, Queue* owner) {
  size_t& used = used_.at(device);
  TORCH_CHECK(used + size <= kDeviceBytes, "CUDA out of memory. (The simulated device never joins free blocks.)");
  char* address = arena().device + device * kDeviceBytes + used;
  used += size;
  std::memset(host_address(address), kPoison, size);
  return new Block{address, size, device, owner};
}

void Memory::record_use(const c10::DataPtr& data, Queue& user) {
  if (!data.get() || data.get_deleter() != &Memory::free) return;
  std::lock_guard lock(mutex);
  auto* block = static_cast<Block*>(data.get_context());
  if (block->owner != &user) block->users.push_back(&user);
}

void Memory::free(void* context) {
  auto* block = static_cast<Block*>(context);
  if (!block) return;
  Memory& self = memory();
  std::lock_guard lock(self.mutex);
  self.live.at(block->device) -= static_cast<int64_t>(block->size);
  Freed freed{block, {}};
  for (Queue* user : block->users) freed.users.push_back(user->tail());
  block->users.clear();
  self.freed_.push_back(std::move(freed));
  self.recycle_what_is_unused();
}

void Memory::recycle_what_is_unused() {
  std::erase_if(freed_, [this](const Freed& freed) {
    for (const Ticket& user : freed.users)
      if (!user.done()) return false;
    recycle(freed.block);
    return true;
  });
}

// The owner's stream poisons it, in order, so whatever comes later on that stream may use it at once.
void Memory::recycle(Block* block) {
  auto poison = [block] { std::memset(host_address(block->address), kPoison, block->size); };
  block->owner->enqueue("poison", poison, Queue::Kind::kOwn);
  free_[{block->owner, block->size}].push_back(block);
}

}  // namespace

c10::DeviceIndex device_of_address(const void* address) {
  const auto offset = static_cast<const char*>(address) - arena().device;
  if (offset < 0 || offset >= static_cast<ptrdiff_t>(kArenaBytes)) return -1;
  return static_cast<c10::DeviceIndex>(offset / static_cast<ptrdiff_t>(kDeviceBytes));
}

void* host_address(const void* address) {
  if (!address) return nullptr;
  TORCH_CHECK(device_of_address(address) >= 0, "a tensor of the simulated device holds a foreign address");
  return arena().host + (static_cast<const char*>(address) - arena().device);
}

void record_use(const c10::DataPtr& data, Queue& user) { memory().record_use(data, user); }
c10::Allocator* device_allocator() { return &memory(); }

int64_t allocated_bytes(c10::DeviceIndex device) {
  std::lock_guard lock(memory().mutex);
  return memory().live.at(device);
}

}  // namespace simulated
