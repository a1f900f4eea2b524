// SPDX-License-Identifier: Apache-2.0
// Lazy tensors: views of alias roots.
#include "bridge/tensor/tensor.h"

#include <atomic>
#include <optional>
#include <typeinfo>

#include "bridge/python/source.h"
#include "bridge/tensor/strided.h"

namespace spmdx::bridge {
namespace {

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

// PyTorch's C++ reader of files gives a tensor a storage, and afterwards sets sizes and strides of the tensor.
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
  copy->cached_writes = cached_writes;
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
  cached_writes = lazy->cached_writes;
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
  cached_writes = other.cached_writes;
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
  return at::detail::make_tensor<LazyTensor>(c10::Storage(new_root(std::move(meta), std::move(value))), layout, 0);
}

at::Tensor make_view(const LazyTensor& source, const ViewChain& steps, const Meta& meta, LazyValue value) {
  // An offset counts elements of the tensor's own dtype.
  const auto bytes = source.storage_offset() * static_cast<int64_t>(source.dtype().itemsize());
  const int64_t offset = bytes / static_cast<int64_t>(c10::elementSize(meta.dtype)) + meta.offset;
  auto view = at::detail::make_tensor<LazyTensor>(source.root_storage(), meta, offset, source.key_set());
  set_bits(view, meta);
  LazyTensor& lazy = lazy_of(view);
  lazy.set_chain(extended(source.chain(), steps));
  if (!steps) lazy.of_view = source.of_view;  // the same elements
  if (value.data || value.id != kNone) {
    lazy.cached = std::move(value);
    lazy.cached_writes = source.root().writes;
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
