// SPDX-License-Identifier: Apache-2.0
// Kernels of the simulated CUDA device that are about memory: empty, set_, resize_, copies, record_stream.
#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty_like.h>
#include <c10/util/strides.h>
#include <torch/library.h>

#include <cstring>

#include "simulated.h"

namespace simulated {
namespace {

at::Tensor empty_memory_format(at::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                               std::optional<at::Device> device, std::optional<bool> pin_memory,
                               std::optional<at::MemoryFormat> memory_format) {
  TORCH_CHECK(!pin_memory.value_or(false), "Only dense CPU tensors can be pinned");
  const c10::DeviceGuard on(device.value_or(c10::Device(kDevice)));
  return at::detail::empty_generic(size, device_allocator(), c10::DispatchKeySet(c10::DispatchKey::CUDA),
                                   c10::dtype_or_default(dtype), memory_format);
}

at::Tensor empty_strided_op(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                            std::optional<at::Layout>, std::optional<at::Device> device,
                            std::optional<bool> pin_memory) {
  TORCH_CHECK(!pin_memory.value_or(false), "Only dense CPU tensors can be pinned");
  return empty_strided(size, stride, c10::dtype_or_default(dtype), device.value_or(c10::Device(kDevice)));
}

void copy_between_devices(const at::Tensor& to, const at::Tensor& from, std::function<void()> work) {
  // As CUDA does it: on the source's stream, which waits for the target's, which waits for the copy.
  Queue& reader = current_queue(from.device());
  Queue& writer = current_queue(to.device());
  reader.wait_for(writer.tail());
  writer.wait_for(reader.enqueue("copy_", std::move(work)));
}

void copy_to_device(const at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  TORCH_CHECK(from.is_cpu(), "the simulated device cannot copy from ", from.device());
  const std::shared_ptr<void> pinned = keep_pinned(from.storage().data());
  const bool later = non_blocking && pinned;
  const at::Tensor source = later ? host_alias(from) : at::empty_like(from).copy_(from);
  auto work = [to = host_alias(to), source, pinned] { to.copy_(source); };
  current_queue(to.device()).enqueue("copy_", std::move(work));
}

void copy_to_host(const at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  TORCH_CHECK(to.is_cpu(), "the simulated device cannot copy to ", to.device());
  const std::shared_ptr<void> pinned = keep_pinned(to.storage().data());
  auto work = [to = host_alias(to), from = host_alias(from), pinned] { to.copy_(from); };
  Queue& queue = current_queue(from.device());
  queue.enqueue("copy_", std::move(work));
  if (!non_blocking || !pinned) queue.synchronize();
}

at::Tensor& copy_(at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  if (self.is_same(source)) return self;
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  const at::Tensor from = source.sizes() == self.sizes() ? source : source.expand(self.sizes());
  if (self.numel() == 0) return self;
  if (!from.is_cuda()) {
    copy_to_device(self, from, non_blocking);
  } else if (!self.is_cuda()) {
    copy_to_host(self, from, non_blocking);
  } else {
    auto work = [to = host_alias(self), from = host_alias(from)] { to.copy_(from); };
    if (self.device() == from.device())
      current_queue(self.device()).enqueue("copy_", std::move(work));
    else
      copy_between_devices(self, from, std::move(work));
  }
  return self;
}

void grow(const at::Tensor& tensor, size_t bytes) {
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  const size_t before = storage->nbytes();
  if (bytes <= before) return;
  TORCH_CHECK(storage->resizable(), "Trying to resize storage that is not resizable");
  const c10::DeviceGuard on(tensor.device());
  c10::DataPtr memory = device_allocator()->allocate(bytes);
  if (before > 0) {
    auto work = [to = host_address(memory.get()), from = host_address(storage->data()), before] {
      std::memcpy(to, from, before);
    };
    current_queue(tensor.device()).enqueue("resize_", std::move(work));
  }
  storage->set_data_ptr_noswap(std::move(memory));
  storage->set_nbytes(bytes);
}

const at::Tensor& resize_(const at::Tensor& self, at::IntArrayRef size, std::optional<at::MemoryFormat> format) {
  if (self.sizes() != size) resize(self, size, c10::contiguous_strides(size));
  if (format && *format != at::MemoryFormat::Preserve) self.unsafeGetTensorImpl()->empty_tensor_restride(*format);
  return self;
}

at::Tensor& set_storage_offset(at::Tensor& self, at::Storage source, int64_t offset, at::IntArrayRef size,
                               at::IntArrayRef stride) {
  at::native::checkSetStorage(self, std::move(source), offset, size, stride);
  self.unsafeGetTensorImpl()->set_storage_offset(offset);
  resize(self, size, stride.empty() && !size.empty() ? at::IntArrayRef(c10::contiguous_strides(size)) : stride);
  return self;
}

at::Tensor& set_storage(at::Tensor& self, at::Storage source) {
  const auto elements = static_cast<int64_t>(source.nbytes() / self.dtype().itemsize());
  return set_storage_offset(self, std::move(source), 0, {elements}, {1});
}

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  return set_storage_offset(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

at::Tensor& set_nothing(at::Tensor& self) {
  c10::Storage none(c10::Storage::use_byte_size_t{}, 0, device_allocator(), true);
  return set_storage_offset(self, std::move(none), 0, {0}, {1});
}

void record_stream(at::Tensor& self, c10::Stream stream) { record_use(self.storage().data_ptr(), queue_of(stream)); }

TORCH_LIBRARY_IMPL(aten, CUDA, m) {
  m.impl("empty.memory_format", empty_memory_format);
  m.impl("empty_strided", empty_strided_op);
  m.impl("copy_", copy_);
  m.impl("resize_", resize_);
  m.impl("set_", set_nothing);
  m.impl("set_.source_Tensor", set_tensor);
  m.impl("set_.source_Storage", set_storage);
  m.impl("set_.source_Storage_storage_offset", set_storage_offset);
  m.impl("record_stream", record_stream);
}

}  // namespace

at::Tensor tensor_over(c10::Storage storage, c10::DispatchKey key, const at::Tensor& like) {
  at::Tensor made =
      at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(key), like.dtype());
  made.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
  made._set_conj(like.is_conj());
  made._set_neg(like.is_neg());
  return made;
}

at::Tensor host_alias(const at::Tensor& tensor) {
  const c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  void* address = const_cast<void*>(storage->data());
  c10::DataPtr bytes(tensor.is_cuda() ? host_address(address) : address, c10::Device(c10::kCPU));
  c10::Storage alias(c10::Storage::use_byte_size_t{}, storage->nbytes(), std::move(bytes));
  return tensor_over(std::move(alias), c10::DispatchKey::CPU, tensor);
}

at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype, c10::Device device) {
  const c10::DeviceGuard on(device);
  return at::detail::empty_strided_generic(sizes, strides, device_allocator(),
                                           c10::DispatchKeySet(c10::DispatchKey::CUDA), dtype);
}

void resize(const at::Tensor& tensor, at::IntArrayRef sizes, at::IntArrayRef strides) {
  grow(tensor, at::detail::computeStorageNbytes(sizes, strides, tensor.dtype().itemsize(), tensor.storage_offset()));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, tensor.storage_offset());
}

}  // namespace simulated
