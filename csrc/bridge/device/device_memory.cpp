// SPDX-License-Identifier: Apache-2.0
// Storages without a tensor are roots of bytes; statistics are those of the process, or of the GPU that it uses.
#include "bridge/device/device_memory.h"

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>

#include "bridge/backend/shard_device.h"
#include "bridge/recorder/recorder.h"
#include "bridge/recorder/values.h"
#include "bridge/tensor/meta.h"
#include "bridge/tensor/tensor.h"

namespace spmdx::bridge {
namespace {

const c10::Device kLogical(kDeviceType, 0);

// What a process has in memory now, and had at most; bytes.
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
  void recordStream(const c10::DataPtr&, c10::Stream) override {}  // there is one, and work is ordered on it
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex) override {
    if (!shard_device().is_cpu())
      return c10::getDeviceAllocator(shard_device().type())->getDeviceStats(shard_device().index());
    const auto [now, most] = resident_bytes();
    c10::CachingDeviceAllocator::DeviceStats stats;
    for (auto* bytes : {&stats.allocated_bytes, &stats.reserved_bytes, &stats.active_bytes, &stats.requested_bytes}) {
      auto& all = (*bytes)[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)];
      all.current = now;
      all.peak = most;
    }
    return stats;
  }
  // The system keeps the peak of a process, and resets none.
  void resetAccumulatedStats(c10::DeviceIndex) override {
    if (!shard_device().is_cpu())
      c10::getDeviceAllocator(shard_device().type())->resetAccumulatedStats(shard_device().index());
  }
  void resetPeakStats(c10::DeviceIndex) override {
    if (!shard_device().is_cpu())
      c10::getDeviceAllocator(shard_device().type())->resetPeakStats(shard_device().index());
  }
};

// Ordinary memory, of which nothing is kept for later.
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

// Storage made without a tensor (torch.load, UntypedStorage): a root of bytes, all 0.
c10::intrusive_ptr<c10::StorageImpl> make_storage(c10::StorageImpl::use_byte_size_t, c10::SymInt size, c10::DataPtr,
                                                  c10::Allocator*, bool) {
  const MetaRef bytes = share({c10::kByte, {size.guard_int(__FILE__, __LINE__)}, {1}, 0, true});
  Recorder::Lock lock;
  const ValueId zeros = full_int(bytes->sizes, 0, DType::u8);
  auto root = Root::make(bytes, Recorder::instance().lazy(zeros));
  // torch.load asks for an address that is not null; nothing of ours reads through it.
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
