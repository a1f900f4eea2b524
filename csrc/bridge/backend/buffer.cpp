// SPDX-License-Identifier: Apache-2.0
// Makes buffers on the shard device from tensors.
#include "bridge/backend/buffer.h"

#include <mutex>
#include <utility>

#include "bridge/backend/host_memory.h"
#include "bridge/backend/shard_device.h"

namespace spmdx::bridge {

BufferRef lent(const at::Tensor& tensor) {
  fix_shard_device();
  follow_program(tensor);
  return buffer_of(to_shard_device(tensor));
}

BufferRef uploaded(const at::Tensor& tensor, at::MemoryFormat format) {
  fix_shard_device();
  follow_program(tensor);
  KernelGuard guard;
  const at::Tensor plain = tensor.detach().resolve_conj().resolve_neg();
  if (plain.device() == shard_device())
    return buffer_of(plain.is_cpu() ? copy_on_host(plain, format) : plain.clone(format));
  if (!plain.is_cpu()) return buffer_of(to_shard_device(plain.clone(format)));
  at::Tensor host = pinned_copy(plain, format);
  at::Tensor there = to_shard_device(host, true);
  return std::make_shared<AtenBuffer>(std::move(there), uploads_are_compared() ? std::move(host) : at::Tensor());
}

// A thread of the program and the one that runs steps may ask at once. One lock for all buffers: it is asked rarely.
at::Tensor take_host(const BufferRef& buffer) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  return std::exchange(static_cast<AtenBuffer&>(*buffer).host_, at::Tensor());
}

bool owns_memory_alone(const at::Tensor& tensor, size_t sharers) {
  return tensor.use_count() == 1 && tensor.storage().use_count() == sharers && tensor.is_non_overlapping_and_dense() &&
         is_plain(tensor) && !tensor.unsafeGetTensorImpl()->is_wrapped_number();
}

}  // namespace spmdx::bridge
