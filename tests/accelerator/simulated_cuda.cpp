// SPDX-License-Identifier: Apache-2.0
// A simulated CUDA device for builds of PyTorch without CUDA: its registration, and operators for tests of it.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/ops/empty.h>
#include <c10/core/Event.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <execinfo.h>
#include <signal.h>
#include <torch/library.h>
#include <unistd.h>

#include <cstdlib>
#include <new>
#include <string_view>

#include "simulated.h"

namespace simulated {
namespace {

const c10::impl::DeviceGuardImplInterface& guard() { return *c10::impl::getDeviceGuardImpl(kDevice); }

struct Hooks final : at::CUDAHooksInterface {
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasCUDA() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  std::string showConfig() const override { return "simulated CUDA device\n"; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    static const auto* generator = new at::Generator(at::detail::createCPUGenerator());
    return *generator;
  }
  at::Generator getNewGenerator(c10::DeviceIndex) const override { return at::detail::createCPUGenerator(); }
  at::Device getDeviceFromPtr(void* data) const override { return {kDevice, device_of_address(data)}; }
  bool isPinnedPtr(const void* data) const override { return keep_pinned(data) != nullptr; }
  at::Allocator* getPinnedMemoryAllocator() const override { return pinned_allocator(); }
  at::Allocator* getCUDADeviceAllocator() const override { return device_allocator(); }
  c10::DeviceIndex deviceCount() const override { return device_count(); }
  int getNumGPUs() const override { return device_count(); }
  c10::DeviceIndex current_device() const override { return getCurrentDevice(); }
  c10::DeviceIndex getCurrentDevice() const override { return guard().getDevice().index(); }
  void setCurrentDevice(c10::DeviceIndex device) const override { guard().setDevice({kDevice, device}); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    return guard().exchangeDevice({kDevice, device}).index();
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override { return exchangeDevice(device); }
  void deviceSynchronize(c10::DeviceIndex device) const override { synchronize(device); }
};

// PyTorch makes its hooks once, maybe before this library is loaded; so ours take the place of that object.
void install_hooks() {
  static_assert(sizeof(Hooks) == sizeof(at::CUDAHooksInterface));
  new (const_cast<at::CUDAHooksInterface*>(&at::detail::getCUDAHooks())) Hooks;
}

void drain() {
  for (c10::DeviceIndex device = 0; device < device_count(); ++device) {
    try {
      synchronize(device);
    } catch (const std::exception&) {  // was printed when it happened
    }
  }
}

// Says what happened when host code touches device memory; then whoever was there before us handles it.
struct sigaction before;

void on_fault(int signal, siginfo_t* fault, void*) {
  if (device_of_address(fault->si_addr) >= 0) {
    constexpr std::string_view text = "simulated_cuda: host code touched device memory. The call:\n";
    (void)!write(STDERR_FILENO, text.data(), text.size());
    std::array<void*, 64> frames;
    backtrace_symbols_fd(frames.data(), backtrace(frames.data(), frames.size()), STDERR_FILENO);
  }
  sigaction(signal, &before, nullptr);  // the access is repeated when this returns
}

void watch_faults() {
  std::array<void*, 1> frame;
  backtrace(frame.data(), 1);  // loads what it needs now, not in the handler
  struct sigaction ours{};
  ours.sa_sigaction = on_fault;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGSEGV, &ours, &before);
}

const bool installed = [] {
  c10::SetAllocator(kDevice, device_allocator());
  install_hooks();
  watch_faults();
  std::atexit(drain);  // kernels must not run while PyTorch is torn down
  return true;
}();

// Operators by which Python tests drive the device, since torch.cuda refuses in a build without CUDA.

at::Tensor to_device(const at::Tensor& tensor, int64_t device) {
  return tensor.to(c10::Device(kDevice, static_cast<c10::DeviceIndex>(device)));
}

at::Tensor to_host(const at::Tensor& tensor) { return tensor.to(c10::kCPU); }

int64_t use_stream(int64_t stream, int64_t device) {
  TORCH_CHECK(stream >= 0 && stream <= kPool && device >= 0 && device < device_count(), "there is no such stream");
  const c10::Device on(kDevice, static_cast<c10::DeviceIndex>(device));
  return guard().exchangeStream(c10::Stream(c10::Stream::UNSAFE, on, stream)).id();
}

std::vector<c10::Event>& events() {
  static auto* events = new std::vector<c10::Event>;
  return *events;
}

int64_t record_event(int64_t device) {
  events().emplace_back(kDevice);
  events().back().record(guard().getStream({kDevice, static_cast<c10::DeviceIndex>(device)}));
  return static_cast<int64_t>(events().size()) - 1;
}

void wait_event(int64_t event, int64_t device) {
  events().at(event).block(guard().getStream({kDevice, static_cast<c10::DeviceIndex>(device)}));
}

bool query_event(int64_t event) { return events().at(event).query(); }
void synchronize_event(int64_t event) { events().at(event).synchronize(); }
void synchronize_device(int64_t device) { synchronize(static_cast<c10::DeviceIndex>(device)); }
int64_t allocated(int64_t device) { return allocated_bytes(static_cast<c10::DeviceIndex>(device)); }

void set_delay(int64_t microseconds, int64_t stream, int64_t device) {
  const c10::Device on(kDevice, static_cast<c10::DeviceIndex>(device));
  queue_of(c10::Stream(c10::Stream::UNSAFE, on, stream)).set_delay(microseconds);
}

at::Tensor pinned(const at::Tensor& tensor) {
  return at::empty(tensor.sizes(), tensor.options().pinned_memory(true)).copy_(tensor);
}

TORCH_LIBRARY(simulated_cuda, m) {
  m.def("to_device(Tensor tensor, int device=0) -> Tensor", to_device);
  m.def("to_host(Tensor tensor) -> Tensor", to_host);
  m.def("pinned(Tensor tensor) -> Tensor", pinned);
  m.def("device_count() -> int", [] { return static_cast<int64_t>(device_count()); });
  m.def("use_stream(int stream, int device=0) -> int", use_stream);
  m.def("record_event(int device=0) -> int", record_event);
  m.def("wait_event(int event, int device=0) -> ()", wait_event);
  m.def("query_event(int event) -> bool", query_event);
  m.def("synchronize_event(int event) -> ()", synchronize_event);
  m.def("synchronize(int device=0) -> ()", synchronize_device);
  m.def("allocated_bytes(int device=0) -> int", allocated);
  m.def("blocking_operators() -> str[]", blocking_operators);
  m.def("set_delay(int microseconds, int stream=0, int device=0) -> ()", set_delay);
}

}  // namespace
}  // namespace simulated
