// SPDX-License-Identifier: Apache-2.0
// Lazy tensors, their alias roots, and the list of roots that are alive.
#include "bridge/tensor/tensor.h"

#include <ATen/EmptyTensor.h>

#include <atomic>
#include <mutex>
#include <optional>
#include <typeinfo>

#include "bridge/python/source.h"
#include "bridge/tensor/accelerator.h"
#include "bridge/tensor/strided.h"

namespace spmdx::bridge {

using WeakRootRef = c10::weak_intrusive_ptr<c10::StorageImpl>;

// The roots that are alive. Its mutex is a leaf lock: no Python runs while it is held, so a root may die anywhere.
// Strong references are made without it, since PyTorch takes the GIL for that where Python holds the root as a storage.
struct Registry {
  static Registry& instance() {
    static auto* registry = new Registry;  // outlives every tensor, module globals included
    return *registry;
  }

  void add(const c10::intrusive_ptr<Root>& root) {
    root->listed_ = WeakRootRef(RootRef(root));
    const std::lock_guard lock(mutex);
    root->serial = next++;
    root->place_ = roots.size();
    roots.push_back(root.get());
  }

  // The weak reference is let go when nobody walks who may look at the root.
  void remove(Root& root) {
    const std::lock_guard lock(mutex);
    roots[root.place_] = nullptr;
    if (++dead > roots.size() / 2) close_gaps();
    if (walks > 0) died.push_back(std::move(root.listed_));
  }

  std::vector<RootRef> all() {
    const std::vector<Root*> seen = begin_walk();
    std::vector<RootRef> alive;
    alive.reserve(seen.size());
    for (Root* root : seen)
      if (Root* held = root ? c10::raw::weak_intrusive_ptr::lock(root) : nullptr)
        alive.push_back(RootRef::reclaim(held));
    end_walk();
    return alive;
  }

 private:
  std::vector<Root*> begin_walk() {
    const std::lock_guard lock(mutex);
    ++walks;
    return roots;
  }

  void end_walk() {
    std::vector<WeakRootRef> freed;  // after the mutex is given up
    const std::lock_guard lock(mutex);
    if (--walks == 0) freed.swap(died);
  }

  void close_gaps() {
    std::erase(roots, nullptr);
    for (size_t i = 0; i < roots.size(); ++i) roots[i]->place_ = i;
    dead = 0;
  }

  std::mutex mutex;
  std::vector<Root*> roots;  // in order of creation; null: it has died
  size_t dead = 0;           // nulls
  uint64_t next = 1;
  int walks = 0;                  // under way
  std::vector<WeakRootRef> died;  // since the first of them began
};

namespace {

size_t storage_bytes(const Meta& meta) {
  return at::detail::computeStorageNbytes(meta.sizes, meta.strides, c10::elementSize(meta.dtype));
}

ViewChain extended(const ViewChain& chain, const ViewChain& steps) {
  if (!chain || !steps) return chain ? chain : steps;
  auto longer = *chain;
  longer.insert(longer.end(), steps->begin(), steps->end());
  return std::make_shared<const std::vector<ViewStep>>(std::move(longer));
}

std::optional<Annotation> annotation_of(const LazyTensor& tensor) {
  const Annotation* annotation = tensor.annotation();
  return annotation ? std::optional(*annotation) : std::nullopt;
}

std::atomic<KeepAnnotation> keep_annotation{[](LazyTensor&, const Annotation&) {}};

LazyTensor& lazy_of(const at::Tensor& tensor) { return *static_cast<LazyTensor*>(tensor.unsafeGetTensorImpl()); }

}  // namespace

Root::Root(MetaRef base, LazyValue value)
    : StorageImpl(use_byte_size_t(), storage_bytes(*base), at::DataPtr(nullptr, c10::Device(kDeviceType, 0)), nullptr,
                  false),
      current(std::move(value)),
      base(std::move(base)),
      listed_(RootRef()) {}

c10::intrusive_ptr<Root> Root::make(MetaRef base, LazyValue value) {
  note_device_use();
  auto root = c10::intrusive_ptr<Root>::unsafe_steal_from_new(new Root(std::move(base), std::move(value)));
  Registry::instance().add(root);
  return root;
}

// There is no strong reference any more. The thread that dropped the last one still has a weak one.
void Root::release_resources() {
  StorageImpl::release_resources();
  Registry::instance().remove(*this);
  listed_.reset();
}

std::vector<RootRef> live_roots() { return Registry::instance().all(); }

LazyTensor::LazyTensor(c10::Storage storage, const Meta& meta, int64_t offset)
    : TensorImpl(std::move(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                 c10::scalarTypeToTypeMeta(meta.dtype)) {
  set_sizes_and_strides(meta.sizes, meta.strides, offset);
  grown_ = root().outgrown.size();
}

LazyTensor::LazyTensor(c10::Storage storage, const Meta& meta, int64_t offset, c10::DispatchKeySet keys)
    : TensorImpl(TensorImpl::VIEW, std::move(storage), keys, c10::scalarTypeToTypeMeta(meta.dtype)) {
  set_sizes_and_strides(meta.sizes, meta.strides, offset);
  grown_ = root().outgrown.size();
}

void LazyTensor::follow_growth() const {
  for (const auto& outgrown = root().outgrown; grown_ < outgrown.size(); ++grown_)
    chain_ = extended(outgrown[grown_].steps, chain_);
}

// PyTorch's C++ reader of files gives a tensor a storage, and then writes sizes and strides into it.
void LazyTensor::follow_sizes() const {
  std::vector<ViewStep> steps =
      steps_to(*root().base, root().nbytes(),
               {c10::typeMetaToScalarType(dtype()), sizes().vec(), strides().vec(), storage_offset(), true});
  chain_ = steps.empty() ? nullptr : std::make_shared<const std::vector<ViewStep>>(std::move(steps));
}

template <class Version>
c10::intrusive_ptr<c10::TensorImpl> LazyTensor::copy_and_detach(Version&& version, bool allow_change) const {
  auto copy = c10::make_intrusive<LazyTensor>(c10::Storage(storage_), Meta{}, 0);
  copy_tensor_metadata(this, copy.get(), std::forward<Version>(version), allow_change);
  copy->set_chain(chain());
  copy->cached = cached;
  copy->cached_generation = cached_generation;
  copy->of_view = of_view;
  copy->refresh_numel();
  copy->refresh_contiguous();
  return copy;
}

c10::intrusive_ptr<c10::TensorImpl> LazyTensor::shallow_copy_and_detach(const c10::VariableVersion& version,
                                                                        bool allow_change) const {
  return copy_and_detach(version, allow_change);
}

c10::intrusive_ptr<c10::TensorImpl> LazyTensor::shallow_copy_and_detach(c10::VariableVersion&& version,
                                                                        bool allow_change) const {
  return copy_and_detach(std::move(version), allow_change);
}

void LazyTensor::shallow_copy_from(const c10::intrusive_ptr<TensorImpl>& source) {
  auto* lazy = dynamic_cast<LazyTensor*>(source.get());
  TORCH_CHECK(lazy,
              "cannot make an spmdx tensor share the data of a tensor on another device. "
              "Expected an spmdx tensor. Move it with .to('spmdx') first.");
  const std::optional<Annotation> had = annotation_of(*this);
  copy_tensor_metadata(lazy, this, version_counter(), allow_tensor_metadata_change());
  set_chain(lazy->chain());
  cached = lazy->cached;
  cached_generation = lazy->cached_generation;
  of_view = lazy->of_view;
  refresh_numel();
  refresh_contiguous();
  if (had) keep_annotation.load()(*this, *had);
}

void LazyTensor::become(const LazyTensor& other) {
  const bool stays = &root() == &other.root();
  const std::optional<Annotation> had = annotation_of(*this);
  storage_ = other.storage_;
  set_chain(other.chain());
  cached = other.cached;
  cached_generation = other.cached_generation;
  of_view = other.of_view;
  set_sizes_and_strides(other.sizes(), other.strides(), other.storage_offset());
  _set_conj(other.is_conj());
  _set_neg(other.is_neg());
  if (!had || (stays && annotation())) return;
  if (!stays) return keep_annotation.load()(*this, *had);
  warn_of_lost_annotation("made at " + source_text(had->source) +
                          " is gone: the tensor shows its memory in another layout now. Expected the tensor as it was "
                          "marked. Call spmdx.mark_sharding again.");
}

LazyTensor* as_lazy(const at::Tensor& tensor) {
  if (!has_our_device(tensor)) return nullptr;
  c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  return typeid(impl) == typeid(LazyTensor) ? static_cast<LazyTensor*>(&impl) : nullptr;  // the class is final
}

bool has_our_device(const at::Tensor& tensor) {
  return tensor.defined() && tensor.key_set().has_backend(c10::BackendComponent::PrivateUse1Bit);
}

at::Tensor make_tensor(LazyValue value, MetaRef meta) {
  const Meta& layout = *meta;
  auto root = Root::make(std::move(meta), std::move(value));
  return at::detail::make_tensor<LazyTensor>(c10::Storage(std::move(root)), layout, 0);
}

at::Tensor make_view(const LazyTensor& source, const ViewChain& steps, const Meta& meta, LazyValue value) {
  // Offsets count elements of the tensor's own dtype.
  const auto bytes = source.storage_offset() * static_cast<int64_t>(source.dtype().itemsize());
  const int64_t offset = bytes / static_cast<int64_t>(c10::elementSize(meta.dtype)) + meta.offset;
  auto view = at::detail::make_tensor<LazyTensor>(source.root_storage(), meta, offset, source.key_set());
  set_bits(view, meta);
  LazyTensor& lazy = lazy_of(view);
  lazy.set_chain(extended(source.chain(), steps));
  if (!steps) lazy.of_view = source.of_view;  // the same elements
  if (value.data || value.id != kNone) {
    lazy.cached = std::move(value);
    lazy.cached_generation = source.root().generation;
  }
  return view;
}

at::Tensor make_view_of_root(const c10::Storage& root, std::vector<ViewStep> steps, const Meta& meta,
                             const LazyTensor* source) {
  auto view = source ? at::detail::make_tensor<LazyTensor>(root, meta, meta.offset, source->key_set())
                     : at::detail::make_tensor<LazyTensor>(root, meta, meta.offset);
  set_bits(view, meta);
  if (!steps.empty()) lazy_of(view).set_chain(std::make_shared<const std::vector<ViewStep>>(std::move(steps)));
  return view;
}

at::Tensor strided_view(const LazyTensor& source, const Meta& meta) {
  const Root& root = source.root();
  return make_view_of_root(source.root_storage(), steps_to(*root.base, root.nbytes(), meta), meta, &source);
}

void set_keep_annotation(KeepAnnotation keep) { keep_annotation = keep; }

}  // namespace spmdx::bridge
