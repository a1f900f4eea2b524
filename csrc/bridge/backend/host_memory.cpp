// SPDX-License-Identifier: Apache-2.0
// Host memory, advised to lie on huge pages.
#include "bridge/backend/host_memory.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>

#ifdef __linux__
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace spmdx::bridge {
namespace {

// Smaller ones mostly come from memory that the allocator has had before.
constexpr size_t kLarge = size_t{4} << 20;

// Advice alone: where the system has no huge pages, all is as before.
void advise_huge_pages([[maybe_unused]] void* begin, [[maybe_unused]] size_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto from = (reinterpret_cast<uintptr_t>(begin) + page - 1) / page * page;
  const auto to = (reinterpret_cast<uintptr_t>(begin) + bytes) / page * page;
  if (from < to) madvise(reinterpret_cast<void*>(from), to - from, MADV_HUGEPAGE);
#endif
}

// REQUIRES: nobody has touched the elements yet.
at::Tensor advised(at::Tensor made) {
  if (made.nbytes() >= kLarge) advise_huge_pages(made.mutable_data_ptr(), made.nbytes());
  return made;
}

}  // namespace

at::Tensor fresh_on_host(c10::IntArrayRef sizes, c10::IntArrayRef strides, c10::ScalarType type) {
  return advised(at::empty_strided(sizes, strides, at::TensorOptions(type).device(at::kCPU)));
}

at::Tensor copy_on_host(const at::Tensor& tensor, at::MemoryFormat format) {
  return advised(at::empty_like(tensor, {}, format)).copy_(tensor);
}

}  // namespace spmdx::bridge
