// SPDX-License-Identifier: Apache-2.0
// The shard device: where the shards of this process lie, the CPU or an accelerator of PyTorch; and the streams of its
// kernels.
#pragma once
#include <c10/core/Device.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/TensorOptions.h>

#include "bridge/backend/compat.h"
#include "runtime/data/backend.h"

namespace spmdx::bridge {

// The shard device; the CPU for a thread that has a HostGuard.
c10::Device shard_device();
// Chooses the shard device. REQUIRES: PyTorch has initialised it. Throws ShardingError if tensors lie on another one
// already. `compared`: processes compare digests of the data that they upload.
void set_shard_device(c10::Device device, bool compared);
bool uploads_are_compared();  // as set_shard_device was told
// A tensor lies on the shard device, which cannot change from now on.
void fix_shard_device();
// Options of a tensor of this dtype on the shard device.
inline at::TensorOptions on_shard_device(c10::ScalarType type) {
  return at::TensorOptions(type).device(shard_device());
}

// `tensor` copied to the shard device; `tensor` itself if it lies there. `behind`: the copy may happen after this call
// has returned, since `tensor` lives on and nobody writes to it.
at::Tensor to_shard_device(const at::Tensor& tensor, bool behind = false);
// A copy of a CPU tensor in pinned memory, which an accelerator reads by itself.
at::Tensor pinned_copy(const at::Tensor& host, at::MemoryFormat format);
// `tensor` copied to the CPU when the kernels that compute it have run; `tensor` itself if it lies there.
at::Tensor to_host(const at::Tensor& tensor);

// While this object lives, the shard device of this thread is the CPU.
class HostGuard {
 public:
  HostGuard();
  ~HostGuard();
  HostGuard(const HostGuard&) = delete;

 private:
  bool before_;
};

// ---- streams: one that computes, one for messages -----------------------------------------------------------

// What Backend offers under these names, for the calling thread. Without effect on the CPU.
void use_stream(Stream stream);
Event record_event();
void wait_event(const Event& event);
// Says that kernels of the compute stream may read `tensor`, which this thread's stream has made: its memory is not
// given to others before they have run.
void share_with_streams(const at::Tensor& tensor);

// The program may use a stream of its own on the accelerator. follow_program: our kernels from now on run after those
// that the program has queued, and the memory of `made` is kept for them. lead_program: the program's kernels from now
// on run after those that we have queued.
void follow_program(const at::Tensor& made);
void lead_program();

// Held by any thread while it runs kernels: puts them on the thread's stream, out of sight of autograd and autocast.
class KernelGuard {
 public:
  KernelGuard();
  ~KernelGuard();
  KernelGuard(const KernelGuard&) = delete;

 private:
  c10::impl::ExcludeDispatchKeyGuard excluded_;
  at::NoGradGuard no_grad_;
  std::optional<c10::StreamGuard> stream_;
  bool outermost_ = false;
};

}  // namespace spmdx::bridge
