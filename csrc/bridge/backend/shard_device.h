// SPDX-License-Identifier: Apache-2.0
// Where the shards of this process lie, the CPU or an accelerator of PyTorch's, and the streams that its kernels run
// in.
#pragma once
#include <c10/core/Device.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/TensorOptions.h>

#include "bridge/backend/compat.h"
#include "runtime/data/backend.h"

namespace spmdx::bridge {

// For this thread: the CPU under a HostGuard.
c10::Device shard_device();
// REQUIRES: PyTorch has initialised the device. Throws ShardingError if tensors lie elsewhere already. `compared`:
// other processes are told digests of what is uploaded.
void set_shard_device(c10::Device device, bool compared);
bool uploads_are_compared();
// From now on tensors lie there.
void fix_shard_device();
inline at::TensorOptions on_shard_device(c10::ScalarType type) {
  return at::TensorOptions(type).device(shard_device());
}

// The same elements where shards lie; the tensor itself if it is there. `behind`: what is copied lives on and nobody
// writes to it, so that it may be read later.
at::Tensor to_shard_device(const at::Tensor& tensor, bool behind = false);
// A copy of a host tensor in memory that an accelerator reads by itself.
at::Tensor pinned_copy(const at::Tensor& host, at::MemoryFormat format);
// The same elements on the CPU, when all that computes them has run.
at::Tensor to_host(const at::Tensor& tensor);

// What this thread makes and computes meanwhile is on the CPU.
class HostGuard {
 public:
  HostGuard();
  ~HostGuard();
  HostGuard(const HostGuard&) = delete;

 private:
  bool before_;
};

// ---- streams: one of each kind ------------------------------------------------------------------------------

void use_stream(Stream stream);  // of this thread
Event record_event();
void wait_event(const Event& event);
// Made on this thread's stream. If that is the stream of messages, kernels may read it: its memory is not given away
// before they have run.
void share_with_streams(const at::Tensor& tensor);

// The program may have a stream of its own on the accelerator. What it made there is waited for by what is computed
// from now on, and kept in memory for that; and the other way round, for what it is given.
void follow_program(const at::Tensor& made);
void lead_program();

// Held while kernels run, on whichever thread that is.
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
