// SPDX-License-Identifier: Apache-2.0
// Device guard of the simulated CUDA device: current devices, current streams, events (positions in streams).
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "simulated.h"

namespace simulated {
namespace {

thread_local c10::DeviceIndex current_device = 0;
thread_local std::array<c10::StreamId, kMostDevices> current_stream{};

c10::Stream stream(c10::DeviceIndex device, c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kDevice, device), id);
}

struct Event {
  std::mutex mutex;
  Ticket ticket;
  Ticket get() {
    std::lock_guard lock(mutex);
    return ticket;
  }
};

struct Guard final : c10::impl::DeviceGuardImplInterface {
  static constexpr c10::DeviceType static_type = kDevice;
  Guard() = default;
  explicit Guard(c10::DeviceType) {}
  c10::DeviceType type() const override { return kDevice; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override { return c10::Device(kDevice, current_device); }
  void setDevice(c10::Device device) const override {
    TORCH_CHECK(device.is_cuda() && device.index() < device_count(), "invalid device ordinal: ", device);
    uncheckedSetDevice(device);
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.index() >= 0) current_device = device.index();
  }
  c10::Stream getStream(c10::Device device) const override {
    return stream(index_of(device), current_stream.at(index_of(device)));
  }
  c10::Stream getDefaultStream(c10::Device device) const override { return stream(index_of(device), 0); }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    static std::array<std::atomic<c10::StreamId>, kMostDevices> next{};
    return stream(index_of(device), 1 + next.at(index_of(device))++ % kPool);
  }
  c10::Stream getNewStream(c10::Device device, int) const override { return getStreamFromGlobalPool(device, false); }
  c10::Stream exchangeStream(c10::Stream now) const override {
    const c10::Stream before = getStream(now.device());
    current_stream.at(now.device_index()) = now.id();
    return before;
  }
  c10::DeviceIndex deviceCount() const noexcept override { return device_count(); }

  void record(void** event, const c10::Stream& on, const c10::DeviceIndex, const c10::EventFlag) const override {
    if (!*event) *event = new Event;
    auto* recorded = static_cast<Event*>(*event);
    std::lock_guard lock(recorded->mutex);
    recorded->ticket = queue_of(on).tail();
  }
  void block(void* event, const c10::Stream& on) const override {
    if (event) queue_of(on).wait_for(static_cast<Event*>(event)->get());
  }
  bool queryEvent(void* event) const override { return !event || static_cast<Event*>(event)->get().done(); }
  void synchronizeEvent(void* event) const override {
    if (!event) return;
    const Ticket ticket = static_cast<Event*>(event)->get();
    ticket.wait();
    ticket.rethrow();
  }
  void* getStreamNativeHandle(const c10::Stream on) const override { return &queue_of(on); }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override { delete static_cast<Event*>(event); }
  bool queryStream(const c10::Stream& on) const override { return queue_of(on).tail().done(); }
  void synchronizeStream(const c10::Stream& on) const override { queue_of(on).synchronize(); }
  void synchronizeDevice(const c10::DeviceIndex device) const override {
    synchronize(device < 0 ? current_device : device);
  }
  void recordDataPtrOnStream(const c10::DataPtr& memory, const c10::Stream& user) const override {
    record_use(memory, queue_of(user));
  }

 private:
  static c10::DeviceIndex index_of(c10::Device device) { return device.index() < 0 ? current_device : device.index(); }
};

C10_REGISTER_GUARD_IMPL(CUDA, Guard)

}  // namespace
}  // namespace simulated
