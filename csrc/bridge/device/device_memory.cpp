// SPDX-License-Identifier: Apache-2.0
// A storage made without a tensor is an alias root of bytes; statistics are of values, the process or its accelerator.
#include "bridge/device/device_memory.h"

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>

#include "bridge/backend/shard_device.h"
#include "bridge/tensor/meta.h"
#include "bridge/tensor/tensor.h"
#include "runtime/data/held_bytes.h"

namespace spmdx::bridge {
namespace {

const c10::Device kLogical(kDeviceType, 0);

// The bytes that this process has in memory now, and the most that it ever had.
std::pair<int64_t, int64_t> resident_bytes() {
  int64_t pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const int64_t now = resident * sysconf(_SC_PAGESIZE);
  return {now, std::max(now, static_cast<int64_t>(usage.ru_maxrss) * 1024)};
}

struct Memory final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t) override { return {nullptr, kLogical}; }
  void copy_data(void*, const void*, std::size_t) const override {
    TORCH_CHECK(false, "the memory of an spmdx storage cannot be copied byte by byte. Copy tensors instead.");
  }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {
    if (!shard_device().is_cpu()) c10::getDeviceAllocator(shard_device().type())->emptyCache();
  }
  void recordStream(const c10::DataPtr&, c10::Stream) override {}  // there is only one stream
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex) override {
    if (!shard_device().is_cpu())
      return c10::getDeviceAllocator(shard_device().type())->getDeviceStats(shard_device().index());
    const auto [now, most] = resident_bytes();
    c10::CachingDeviceAllocator::DeviceStats stats;
    const auto set = [](auto& bytes, int64_t current, int64_t peak) {
      auto& all = bytes[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)];
      all.current = current;
      all.peak = peak;
    };
    for (auto* bytes : {&stats.allocated_bytes, &stats.active_bytes, &stats.requested_bytes})
      set(*bytes, held_bytes(), held_peak());
    set(stats.reserved_bytes, now, most);
    return stats;
  }
  // Nothing is accumulated on the CPU.
  void resetAccumulatedStats(c10::DeviceIndex) override {
    if (!shard_device().is_cpu())
      c10::getDeviceAllocator(shard_device().type())->resetAccumulatedStats(shard_device().index());
  }
  // The system cannot reset the peak of a process, which is what is reserved on the CPU.
  void resetPeakStats(c10::DeviceIndex) override {
    reset_held_peak();
    if (!shard_device().is_cpu())
      c10::getDeviceAllocator(shard_device().type())->resetPeakStats(shard_device().index());
  }
};

// CPU memory that is not pinned. Nothing is cached.
struct HostMemory final : at::HostAllocator {
  c10::DataPtr allocate(size_t bytes) override { return c10::GetCPUAllocator()->allocate(bytes); }
  c10::DeleterFnPtr raw_deleter() const override { return c10::GetCPUAllocator()->raw_deleter(); }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }
  bool record_event(void*, void*, c10::Stream) override { return false; }
  void empty_cache() override {}
  at::HostStats get_stats() override { return {}; }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {}
};

// A storage made without a tensor (torch.load, UntypedStorage): an alias root of bytes. PyTorch makes a Python object
// of it, and requires that nothing else refers to it then. So `adopted` lists it and gives it its zeros, when a tensor
// shows it for the first time.
c10::intrusive_ptr<c10::StorageImpl> make_storage(c10::StorageImpl::use_byte_size_t, c10::SymInt size, c10::DataPtr,
                                                  c10::Allocator*, bool) {
  const MetaRef bytes = share({c10::kByte, {size.guard_int(__FILE__, __LINE__)}, {1}, 0, true});
  RootRef root = c10::make_intrusive<Root>(bytes, LazyValue{});
  // torch.load requires an address that is not null. Nothing reads it.
  static char nowhere;
  root->set_data_ptr_noswap(c10::DataPtr(&nowhere, kLogical));
  return root;
}

}  // namespace

void register_memory() {
  static auto* memory = new Memory;
  c10::SetAllocator(kDeviceType, memory);
  static auto* host = new HostMemory;
  at::setHostAllocator(kDeviceType, host);
  c10::SetStorageImplCreate(kDeviceType, make_storage);
}

}  // namespace spmdx::bridge
