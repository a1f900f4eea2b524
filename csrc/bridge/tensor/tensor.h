// SPDX-License-Identifier: Apache-2.0
// The lazy tensor: a TensorImpl with a chain of views from an alias root; the root holds the current value.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>

#include <memory>
#include <vector>

#include "bridge/tensor/annotation.h"
#include "bridge/tensor/meta.h"
#include "bridge/tensor/root.h"
#include "sharding/spec.h"

namespace spmdx::bridge {

class LazyTensor final : public c10::TensorImpl {
 public:
  LazyTensor(c10::Storage storage, const Meta& meta, int64_t offset);
  // A view of a tensor that has these dispatch keys. The view is an inference tensor if that tensor is one, whatever
  // the mode is now.
  LazyTensor(c10::Storage storage, const Meta& meta, int64_t offset, c10::DispatchKeySet keys);
  LazyValue cached;                           // the value of a view
  uint64_t cached_writes = 0;                 // the generation of the root for which `cached` holds
  std::shared_ptr<const Annotation> of_view;  // null for a whole tensor, and for a view that is not annotated

  // The steps from the whole tensor as it is laid out now; null: this is the whole tensor.
  const ViewChain& chain() const {
    if (grown_ != root().outgrown.size()) follow_growth();
    if (sizes() != c10::IntArrayRef(chain_ ? chain_->back().out.sizes : root().base->sizes)) follow_sizes();
    return chain_;
  }
  void set_chain(ViewChain chain) {
    chain_ = std::move(chain);
    grown_ = root().outgrown.size();
  }
  Root& root() const { return *static_cast<Root*>(storage_.unsafeGetStorageImpl()); }
  const c10::Storage& root_storage() const { return storage_; }
  // The annotation of this tensor; null: there is none.
  const Annotation* annotation() const { return chain() ? of_view.get() : root().annotation.get(); }
  bool has_storage() const override { return false; }  // torch.save, deepcopy and torch.compile need it so
  c10::intrusive_ptr<TensorImpl> shallow_copy_and_detach(const c10::VariableVersion&, bool) const override;
  c10::intrusive_ptr<TensorImpl> shallow_copy_and_detach(c10::VariableVersion&&, bool) const override;
  void shallow_copy_from(const c10::intrusive_ptr<TensorImpl>&) override;
  const char* tensorimpl_type_name() const override { return "spmdx::LazyTensor"; }
  // Makes this tensor show what `other` shows, in its layout (inplace_view ops, resize_, set_). If that is other
  // memory, it gets the annotation of this tensor.
  void become(const LazyTensor& other);

 private:
  template <class Version>
  c10::intrusive_ptr<TensorImpl> copy_and_detach(Version&& version, bool allow_change) const;
  void follow_growth() const;
  void follow_sizes() const;

  mutable ViewChain chain_;
  mutable size_t grown_ = 0;  // how many growths of the root `chain_` includes
};

// The lazy tensor behind `tensor`; null for any other tensor, also for FakeTensors of our device.
LazyTensor* as_lazy(const at::Tensor& tensor);
// Whether the tensor has our device's dispatch key, lazy or not.
bool has_our_device(const at::Tensor& tensor);
// A whole tensor with a new root that holds `value`. REQUIRES: `meta` has offset 0.
at::Tensor make_tensor(LazyValue value, MetaRef meta);
// A view of `source`: its chain is followed by `steps` (null: none), and the offset of `meta` counts from that of
// `source`. If `value` is empty, it is derived at the first read.
at::Tensor make_view(const LazyTensor& source, const ViewChain& steps, const Meta& meta, LazyValue value);
// A view by `steps` from a root. It gets the dispatch keys of `source`, if that is given.
at::Tensor make_view_of_root(const c10::Storage& root, std::vector<ViewStep> steps, const Meta& meta,
                             const LazyTensor* source = nullptr);

// A view of the storage of `source` with this dtype and layout. Throws as eager does if it reaches beyond the storage.
at::Tensor strided_view(const LazyTensor& source, const Meta& meta);

// Sets the function that is called for an annotated tensor that shows other memory now; `had` is its annotation.
using KeepAnnotation = void (*)(LazyTensor& tensor, const Annotation& had);
void set_keep_annotation(KeepAnnotation keep);

}  // namespace spmdx::bridge
