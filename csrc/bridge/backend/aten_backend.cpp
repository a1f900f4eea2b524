// SPDX-License-Identifier: Apache-2.0
// AtenBackend: operations on buffers, and the choice of the kernel that runs an op.
#include "bridge/backend/aten_backend.h"

#include <ATen/Dispatch.h>
#include <ATen/Dispatch_v2.h>
#include <ATen/Functions.h>

#include <limits>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "bridge/backend/aten_kernel.h"
#include "bridge/backend/aten_names.h"
#include "bridge/backend/buffer.h"
#include "bridge/backend/closeness.h"
#include "bridge/backend/host_kernel.h"
#include "bridge/backend/own_kernels.h"
#include "bridge/backend/shard_device.h"
#include "bridge/backend/thread_settings.h"
#include "runtime/data/check.h"

namespace spmdx::bridge {
namespace {

bool is_16_bit_float(c10::ScalarType type) {
  return type == c10::ScalarType::Half || type == c10::ScalarType::BFloat16;
}

at::Tensor box_view(const at::Tensor& tensor, const Box& box) {
  c10::SmallVector<int64_t, 6> sizes;
  int64_t offset = tensor.storage_offset();
  for (size_t d = 0; d < box.size(); ++d) {
    sizes.push_back(box[d].extent);
    if (box[d].extent != 0) offset += box[d].start * tensor.stride(static_cast<int64_t>(d));
  }
  return tensor.as_strided(sizes, tensor.strides(), offset);
}

at::Tensor combine(const at::Tensor& a, const at::Tensor& b, Reduction reduction) {
  switch (reduction) {
    case Reduction::none:
      break;
    case Reduction::sum:
      return at::add(a, b);
    case Reduction::max:
      return at::maximum(a, b);
    case Reduction::min:
      return at::minimum(a, b);
    case Reduction::prod:
      return at::mul(a, b);
    case Reduction::any:
      return at::logical_or(a, b).to(a.scalar_type());
    case Reduction::all:
      return at::logical_and(a, b).to(a.scalar_type());
  }
  throw InternalError("a reduction without an operator");
}

// A tensor full of the least or the greatest value of its dtype.
at::Tensor extreme(const at::Tensor& like, bool lowest) {
  if (c10::isFloatingType(like.scalar_type())) {
    const double infinity = std::numeric_limits<double>::infinity();
    return at::full_like(like, lowest ? -infinity : infinity);
  }
  internal_check(!c10::isComplexType(like.scalar_type()), "complex numbers have no order");
  at::Tensor bound = at::empty_like(like);
  AT_DISPATCH_V2(like.scalar_type(), "extreme", AT_WRAP([&] {
                   bound.fill_(lowest ? std::numeric_limits<scalar_t>::lowest() : std::numeric_limits<scalar_t>::max());
                 }),
                 AT_EXPAND(AT_INTEGRAL_TYPES), AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES), at::kBool);
  return bound;
}

at::Tensor make_identity(const at::Tensor& like, Reduction reduction) {
  switch (reduction) {
    case Reduction::none:
      break;
    case Reduction::sum:
    case Reduction::any:
      return at::zeros_like(like);
    case Reduction::prod:
    case Reduction::all:
      return at::ones_like(like);
    case Reduction::max:
      return extreme(like, true);
    case Reduction::min:
      return extreme(like, false);
  }
  throw InternalError("a reduction without an identity");
}

// The bytes of each band of garbage around a buffer: a multiple of every alignment that kernels need.
constexpr int64_t kBand = 256;

// Every byte becomes 0xFF: NaN, -1 or the largest unsigned number. Bytes of bools become 1, since they must be 0 or 1.
void fill_with_garbage(at::Tensor& bytes, c10::ScalarType type) {
  bytes.fill_(type == c10::ScalarType::Bool ? 0x01 : 0xFF);
}

// A tensor of garbage in this layout, between two bands of garbage. REQUIRES: every element has an address of its own.
at::Tensor fenced_garbage(c10::IntArrayRef sizes, c10::IntArrayRef strides, c10::ScalarType type) {
  const auto item = static_cast<int64_t>(c10::elementSize(type));
  at::Tensor bytes = at::empty({c10::multiply_integers(sizes) * item + 2 * kBand}, on_shard_device(at::kByte));
  fill_with_garbage(bytes, type);
  at::Tensor made = at::empty({0}, on_shard_device(type));
  made.set_(bytes.storage(), kBand / item, sizes, strides);
  return made;
}

// A buffer that kernels of both streams may read, whichever of the two has made it.
BufferRef shared_by_streams(at::Tensor tensor) {
  share_with_streams(tensor);
  return buffer_of(std::move(tensor));
}

std::unique_ptr<Kernel> prepare_here(const Call& local) {
  std::unique_ptr<Kernel> kernel = prepare_own(local);
  internal_check(kernel || !local.op.starts_with("spmdx."), "no kernel for " + local.op);
  return kernel ? std::move(kernel) : prepare_aten(local);
}

class AtenBackend final : public Backend {
 public:
  std::unique_ptr<Kernel> prepare(const Call& local) override {
    fix_shard_device();
    if (shard_device().is_cpu()) return prepare_here(local);
    return runs_on_host(local) ? prepare_on_host(local, prepare_here) : prepare_on_accelerator(local, prepare_here);
  }

  std::shared_ptr<const Compilers> compilers() override {
    const std::lock_guard lock(compilers_mutex_);
    return compilers_;
  }
  void set_compilers(std::shared_ptr<const Compilers> compilers) {
    const std::lock_guard lock(compilers_mutex_);
    compilers_.swap(compilers);
  }
  BufferRef perturbed(const BufferRef& buffer, uint64_t seed) override {
    KernelGuard guard;
    const at::Tensor& tensor = tensor_of(buffer);
    const at::Tensor other = bridge::perturbed(tensor, seed);
    return other.is_same(tensor) ? buffer : buffer_of(other);
  }
  bool is_close(const BufferRef& found, const BufferRef& expected, const BufferRef& perturbed) override {
    KernelGuard guard;
    return bridge::is_close(tensor_of(found), tensor_of(expected), perturbed ? tensor_of(perturbed) : at::Tensor());
  }

  void use_stream(Stream stream) override { bridge::use_stream(stream); }
  Event record_event() override { return bridge::record_event(); }
  void wait_event(const Event& event) override { bridge::wait_event(event); }

  int64_t settings_of_thread() override { return bridge::settings_of_thread(); }
  void use_settings(int64_t settings) override { bridge::use_settings(settings); }

  BufferRef empty(DType dtype, const Shape& shape) override {
    KernelGuard guard;
    at::Tensor made = at::empty(shape, on_shard_device(to_scalar_type(dtype)));
    if (check_modes().poison) made = fenced_garbage(made.sizes(), made.strides(), made.scalar_type());
    return shared_by_streams(std::move(made));
  }

  BufferRef identity(DType dtype, const Shape& shape, Reduction reduction) override {
    KernelGuard guard;
    return buffer_of(make_identity(at::empty(shape, on_shard_device(to_scalar_type(dtype))), reduction));
  }

  BufferRef narrow(const BufferRef& buffer, const Box& box) override {
    KernelGuard guard;
    return buffer_of(box_view(tensor_of(buffer), box));
  }

  BufferRef reshape(const BufferRef& buffer, const Shape& shape) override {
    KernelGuard guard;
    return buffer_of(tensor_of(buffer).reshape(shape));
  }

  void copy_box(const BufferRef& dst, const std::vector<int64_t>& dst_starts, const BufferRef& src,
                const Box& src_box) override {
    KernelGuard guard;
    Box dst_box = src_box;
    for (size_t d = 0; d < dst_box.size(); ++d) dst_box[d].start = dst_starts[d];
    box_view(tensor_of(dst), dst_box).copy_(box_view(tensor_of(src), src_box));
  }

  void concatenate(const BufferRef& dst, std::span<const BufferRef> parts, size_t dim) override {
    KernelGuard guard;
    std::vector<at::Tensor> tensors;
    for (const BufferRef& part : parts) tensors.push_back(tensor_of(part));
    at::Tensor target = tensor_of(dst);
    at::cat_out(target, tensors, static_cast<int64_t>(dim));
  }

  void reduce_into(const BufferRef& dst, const BufferRef& src, Reduction reduction) override {
    KernelGuard guard;
    tensor_of(dst).copy_(combine(tensor_of(dst), tensor_of(src), reduction));
  }

  BufferRef reduce(std::span<const BufferRef> buffers, Reduction reduction, int ours) override {
    KernelGuard guard;
    internal_check(!buffers.empty(), "a reduction of nothing");
    const c10::ScalarType type = tensor_of(buffers[0]).scalar_type();
    const c10::ScalarType accumulate = is_16_bit_float(type) ? c10::ScalarType::Float : type;
    at::Tensor total = tensor_of(buffers[0]).to(accumulate);
    for (size_t i = 1; i < buffers.size(); ++i) {
      // From the second addition on, `total` is a tensor of our own, which may be overwritten.
      if (reduction == Reduction::sum && i == 1 && ours >= 0 && type == accumulate) {
        at::Tensor sum = tensor_of(buffers[ours]);
        total = at::add_out(sum, total, tensor_of(buffers[1]));
      } else if (reduction == Reduction::sum && i > 1)
        total.add_(tensor_of(buffers[i]));
      else
        total = combine(total, tensor_of(buffers[i]).to(accumulate), reduction);
    }
    return shared_by_streams(buffers.size() == 1 ? tensor_of(buffers[0]).clone() : total.to(type));
  }

  bool is_alone(const BufferRef& buffer) override {
    return buffer.use_count() == 1 && owns_memory_alone(tensor_of(buffer));
  }

  BufferRef compact(const BufferRef& buffer) override {
    const at::Tensor& tensor = tensor_of(buffer);
    const auto needed = static_cast<size_t>(tensor.numel()) * tensor.element_size();
    if (is_plain(tensor) && tensor.storage().nbytes() <= needed) return buffer;
    KernelGuard guard;
    return buffer_of(tensor.resolve_conj().resolve_neg().clone(at::MemoryFormat::Contiguous));
  }

  bool fill_small_memory(std::span<const BufferRef> shards) override {
    constexpr size_t kSmall = 64 << 10;
    size_t bytes = 0;
    for (const BufferRef& shard : shards) {
      if (!shard || !is_plain(tensor_of(shard))) return false;
      if (!tensor_of(shard).storage().is_alias_of(tensor_of(shards[0]).storage())) return false;
      bytes += tensor_of(shard).nbytes();
    }
    const size_t all = tensor_of(shards[0]).storage().nbytes();
    return bytes == all && all <= kSmall;
  }

  int64_t bytes(const BufferRef& buffer) override { return static_cast<int64_t>(tensor_of(buffer).nbytes()); }

  uint64_t digest(const BufferRef& buffer) override {
    KernelGuard guard;
    const at::Tensor host = take_host(buffer);
    const at::Tensor here = host.defined() ? host : to_host(tensor_of(buffer));
    const at::Tensor plain = here.resolve_conj().resolve_neg().contiguous();
    const std::string_view bytes(static_cast<const char*>(plain.const_data_ptr()), plain.nbytes());
    return std::hash<std::string_view>{}(bytes);
  }

  Memory memory(const BufferRef& buffer) override {
    const c10::Storage& storage = tensor_of(buffer).storage();
    return {storage.unsafeGetStorageImpl(), static_cast<int64_t>(storage.nbytes())};
  }

  bool poison(const BufferRef& buffer) override {
    KernelGuard guard;
    const at::Tensor& tensor = tensor_of(buffer);
    if (!owns_memory_alone(tensor) || tensor.numel() == 0) return false;
    const auto size = static_cast<int64_t>(tensor.storage().nbytes());
    at::Tensor bytes = at::empty({0}, on_shard_device(at::kByte));
    bytes.set_(tensor.storage(), 0, {size}, {1});
    fill_with_garbage(bytes, tensor.scalar_type());
    return true;
  }

  BufferRef fence(const BufferRef& buffer) override {
    KernelGuard guard;
    const at::Tensor& tensor = tensor_of(buffer);
    if (!owns_memory_alone(tensor) || tensor.storage_offset() != 0) return buffer;
    at::Tensor fenced = fenced_garbage(tensor.sizes(), tensor.strides(), tensor.scalar_type());
    fenced.copy_(tensor);
    return buffer_of(std::move(fenced));
  }

 private:
  std::mutex compilers_mutex_;  // a leaf lock
  std::shared_ptr<const Compilers> compilers_;
};

AtenBackend& the_backend() {
  static auto* backend = new AtenBackend;  // never destroyed: a step may still run while the process exits
  return *backend;
}

}  // namespace

Backend& aten_backend() { return the_backend(); }

void set_compilers(std::shared_ptr<const Compilers> compilers) { the_backend().set_compilers(std::move(compilers)); }

}  // namespace spmdx::bridge
