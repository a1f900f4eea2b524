// SPDX-License-Identifier: Apache-2.0
// ShardDevice: uses those interfaces of c10 that are the same for every accelerator.
#include "bridge/backend/shard_device.h"

#include <ATen/Functions.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <atomic>
#include <utility>

#include "base/error.h"

namespace spmdx::bridge {
namespace {

struct ShardDevice {
  c10::Device device{c10::kCPU};
  bool compared = false;
  std::atomic<bool> fixed = false;
  std::optional<c10::Stream> compute, messages;

  c10::Stream stream(Stream stream) const { return stream == Stream::compute ? *compute : *messages; }
};

ShardDevice& the_place() {
  static ShardDevice place;
  return place;
}

thread_local bool here_is_host = false;
thread_local Stream thread_stream = Stream::compute;
thread_local std::optional<c10::Stream> before_guards;  // the program's stream, while this thread holds a KernelGuard

// The shard device if this thread works on an accelerator; null if it works on the CPU.
const ShardDevice* accelerator() { return here_is_host || the_place().device.is_cpu() ? nullptr : &the_place(); }

// Libraries (cuBLAS) look for the context of the GPU on the thread that calls them. A question about a stream puts it
// there.
void join_context(const ShardDevice& place) {
  static thread_local bool joined = false;
  if (joined) return;
  joined = true;
  c10::impl::VirtualGuardImpl(place.device.type()).queryStream(*place.compute);
}

c10::Stream stream_of_program(const ShardDevice& place) {
  return before_guards ? *before_guards : c10::impl::VirtualGuardImpl(place.device.type()).getStream(place.device);
}

}  // namespace

c10::Device shard_device() { return here_is_host ? c10::Device(c10::kCPU) : the_place().device; }

void set_shard_device(c10::Device device, bool compared) {
  ShardDevice& place = the_place();
  if (place.device == device) return;
  if (place.fixed)
    throw ShardingError("tensors lie on " + place.device.str() + " already, so that " + device.str() +
                        " comes too late. Expected the choice before the first tensor. Move it to the top, or set "
                        "SPMDX_DEVICE_TYPE.");
  if (!device.is_cpu()) {
    const c10::impl::VirtualGuardImpl guard(device.type());
    place.compute = guard.getDefaultStream(device);  // the stream that programs use by default
    place.messages = guard.getStreamFromGlobalPool(device, true);
  }
  place.device = device;
  place.compared = compared;
}

bool uploads_are_compared() { return the_place().compared; }

void fix_shard_device() { the_place().fixed = true; }

at::Tensor to_shard_device(const at::Tensor& tensor, bool behind) {
  if (tensor.device() == shard_device()) return tensor;
  KernelGuard guard;
  at::Tensor moved = tensor.to(shard_device(), /*non_blocking=*/behind);
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) moved.unsafeGetTensorImpl()->set_wrapped_number(true);
  return moved;
}

at::Tensor pinned_copy(const at::Tensor& host, at::MemoryFormat format) {
  KernelGuard guard;
  at::Tensor pinned = at::empty_like(host, host.options().pinned_memory(true), format);
  return pinned.copy_(host);
}

at::Tensor to_host(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return tensor;
  KernelGuard guard;
  return tensor.cpu();
}

HostGuard::HostGuard() : before_(std::exchange(here_is_host, true)) {}
HostGuard::~HostGuard() { here_is_host = before_; }

void use_stream(Stream stream) { thread_stream = stream; }

Event record_event() {
  const ShardDevice* place = accelerator();
  if (!place) return nullptr;
  auto event = std::make_shared<c10::Event>(place->device.type());
  event->record(place->stream(thread_stream));
  return event;
}

void wait_event(const Event& event) {
  const ShardDevice* place = accelerator();
  if (place && event) static_cast<const c10::Event*>(event.get())->block(place->stream(thread_stream));
}

void share_with_streams(const at::Tensor& tensor) {
  const ShardDevice* place = accelerator();
  if (!place || thread_stream == Stream::compute || tensor.numel() == 0) return;
  c10::impl::VirtualGuardImpl(place->device.type()).recordDataPtrOnStream(tensor.storage().data_ptr(), *place->compute);
}

void follow_program(const at::Tensor& made) {
  const ShardDevice* place = accelerator();
  if (!place || made.device() != place->device) return;
  const c10::impl::VirtualGuardImpl guard(place->device.type());
  const c10::Stream theirs = stream_of_program(*place);
  if (theirs == *place->compute) return;
  c10::Event event(place->device.type());
  event.record(theirs);
  event.block(*place->compute);
  if (made.numel() > 0) guard.recordDataPtrOnStream(made.storage().data_ptr(), *place->compute);
}

void lead_program() {
  const ShardDevice* place = accelerator();
  if (!place) return;
  const c10::Stream theirs = stream_of_program(*place);
  if (theirs == *place->compute) return;
  c10::Event event(place->device.type());
  event.record(*place->compute);
  event.block(theirs);
}

KernelGuard::KernelGuard() : excluded_(keys_above_kernels()) {
  const ShardDevice* place = accelerator();
  if (!place) return;
  join_context(*place);
  outermost_ = !before_guards;
  if (outermost_) before_guards = stream_of_program(*place);
  stream_.emplace(place->stream(thread_stream));
}

KernelGuard::~KernelGuard() {
  if (outermost_) before_guards.reset();
}

}  // namespace spmdx::bridge
