// SPDX-License-Identifier: Apache-2.0
// Device guard and hooks: one logical device, one stream, events that have always happened.
#include "bridge/device/device.h"

#include <ATen/Context.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "bridge/device/autograd_threads.h"
#include "bridge/device/device_memory.h"
#include "bridge/python/errors.h"
#include "bridge/recorder/resize.h"
#include "bridge/step/flush.h"
#include "bridge/tensor/accelerator.h"
#include "bridge/tensor/generator.h"
#include "bridge/tensor/tensor.h"

namespace spmdx::bridge {
namespace {

const c10::Device kDevice(kDeviceType, 0);

// Submits what is recorded, and waits until all steps have ended.
void synchronize() {
  with_python_errors([] {
    flush(GraphEnd::awaited);
    wait_for_steps();
  });
}

c10::Stream the_stream(c10::Device device) { return c10::Stream(c10::Stream::DEFAULT, device); }

struct Guard final : c10::impl::DeviceGuardImplInterface {
  static constexpr c10::DeviceType static_type = kDeviceType;
  Guard() = default;
  explicit Guard(c10::DeviceType) {}
  c10::DeviceType type() const override { return kDeviceType; }
  c10::Device exchangeDevice(c10::Device) const override { return kDevice; }
  c10::Device getDevice() const override { return kDevice; }
  void setDevice(c10::Device device) const override {
    TORCH_CHECK(device.index() <= 0, "there is one logical spmdx device, spmdx:0, not ", device,
                ". The devices of the mesh lie below it.");
  }
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device device) const noexcept override {
    note_device_use();  // autograd asks, also for a FakeTensor of the device
    give_autograd_a_thread();
    return the_stream(device);
  }
  c10::Stream getDefaultStream(c10::Device device) const override { return the_stream(device); }
  c10::Stream getNewStream(c10::Device device, int) const override { return the_stream(device); }
  c10::Stream exchangeStream(c10::Stream) const noexcept override { return the_stream(kDevice); }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  void record(void**, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, const c10::DeviceIndex) const noexcept override {}
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override { synchronize(); }
  void synchronizeEvent(void*) const override { synchronize(); }
  void synchronizeDevice(const c10::DeviceIndex) const override { synchronize(); }
};

// Host memory is pinned where there is a CUDA device to pin it for.
bool has_cuda() { return at::globalContext().hasCUDA(); }

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  void setCurrentDevice(c10::DeviceIndex) const override {}
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex) const override { return 0; }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex) const override { return 0; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override { return default_generator(); }
  at::Generator getNewGenerator(c10::DeviceIndex) const override { return new_generator(); }
  at::Device getDeviceFromPtr(void*) const override { return kDevice; }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    resize_storage(storage, bytes);
  }
  at::Allocator* getPinnedMemoryAllocator() const override {
    return has_cuda() ? at::globalContext().getPinnedMemoryAllocator(at::kCUDA) : c10::GetCPUAllocator();
  }
  bool isPinnedPtr(const void* data) const override {
    return has_cuda() && at::globalContext().isPinnedPtr(data, at::kCUDA);
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

}  // namespace

void register_hooks() {
  static auto* hooks = new Hooks;
  at::RegisterPrivateUse1HooksInterface(hooks);
  at::globalContext().lazyInitDevice(kDeviceType);  // PyTorch asks only initialised devices what memory is pinned
  be_accelerator_once_used();
  register_memory();
}

}  // namespace spmdx::bridge
