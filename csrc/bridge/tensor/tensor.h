// SPDX-License-Identifier: Apache-2.0
// The lazy tensor: a TensorImpl with a chain of views from an alias root; the root holds the current value.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>

#include <memory>
#include <vector>

#include "bridge/tensor/annotation.h"
#include "bridge/tensor/meta.h"
#include "graph/graph.h"
#include "runtime/data/data.h"
#include "sharding/spec.h"

namespace spmdx::bridge {

constexpr c10::DeviceType kDeviceType = c10::DeviceType::PrivateUse1;

// A value of the graph being recorded (`epoch` is the recorder's), or data of an earlier step.
struct LazyValue {
  uint64_t epoch = 0;
  ValueId id = kNone;
  DataRef data;  // wins when set
};

// The layout that a whole had until its storage grew, and the steps that lead to it from the next one.
struct Outgrown {
  MetaRef base;
  ViewChain steps;
};

// The alias root. Views share it through storage_; data pointer is null. What it holds is guarded by the recorder's
// lock: a step that any thread ends changes `current` and `previous` of every root that is alive.
class Root final : public c10::StorageImpl {
 public:
  static c10::intrusive_ptr<Root> make(MetaRef base, LazyValue value);
  void release_resources() override;  // by the thread that drops the last reference
  LazyValue current;
  uint64_t generation = 1;         // bumped by every write
  uint64_t serial = 0;             // order of creation
  MetaRef base;                    // declared layout of the whole, offset 0
  std::vector<Outgrown> outgrown;  // layouts before each growth, in order
  const Meta& layout(size_t growths) const { return growths < outgrown.size() ? *outgrown[growths].base : *base; }
  bool cut_short = false;    // its storage holds fewer bytes than `base` has
  uint64_t gradient_of = 0;  // the serial of the leaf whose gradient it is
  std::unique_ptr<Annotation> annotation;
  DataRef previous;  // what it held when the graph being recorded first wrote it: for ties

 private:
  friend struct Registry;
  Root(MetaRef base, LazyValue value);

  // The list of roots that are alive holds a weak reference to each, and makes strong ones while it is walked. Without
  // a weak reference PyTorch deletes an object whose only strong reference is dropped with no further look at the
  // count, although a walk may have raised it meanwhile.
  c10::weak_intrusive_ptr<c10::StorageImpl> listed_;
  size_t place_ = 0;  // in the list
};
using RootRef = c10::intrusive_ptr<c10::StorageImpl>;
inline Root& root_of(const RootRef& ref) { return static_cast<Root&>(*ref); }
// Every root that is still reachable, in order of creation. Thread-safe. May take the GIL, for roots that Python holds
// as storages: none of the leaf locks is held by the caller.
std::vector<RootRef> live_roots();

class LazyTensor final : public c10::TensorImpl {
 public:
  LazyTensor(c10::Storage storage, const Meta& meta, int64_t offset);
  // A view of a tensor with these keys: under inference mode too it is what that is, an inference tensor or not.
  LazyTensor(c10::Storage storage, const Meta& meta, int64_t offset, c10::DispatchKeySet keys);
  LazyValue cached;  // of a view
  uint64_t cached_generation = 0;
  std::shared_ptr<const Annotation> of_view;  // null for a whole, and for a view that nobody annotated

  // The steps from the whole as it is laid out now; null: the root itself.
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
  // Null: there is none.
  const Annotation* annotation() const { return chain() ? of_view.get() : root().annotation.get(); }
  bool has_storage() const override { return false; }  // save, deepcopy and compile need it so
  c10::intrusive_ptr<TensorImpl> shallow_copy_and_detach(const c10::VariableVersion&, bool) const override;
  c10::intrusive_ptr<TensorImpl> shallow_copy_and_detach(c10::VariableVersion&&, bool) const override;
  void shallow_copy_from(const c10::intrusive_ptr<TensorImpl>&) override;
  const char* tensorimpl_type_name() const override { return "spmdx::LazyTensor"; }
  // Changes what the tensor views and its declared layout, in place (inplace_view ops, resize_, set_). Other memory is
  // annotated as the tensor was.
  void become(const LazyTensor& other);

 private:
  template <class Version>
  c10::intrusive_ptr<TensorImpl> copy_and_detach(Version&& version, bool allow_change) const;
  void follow_growth() const;
  void follow_sizes() const;

  mutable ViewChain chain_;
  mutable size_t grown_ = 0;  // how many growths of the root the chain knows of
};

// Null for any tensor that is not ours, FakeTensors with our device included.
LazyTensor* as_lazy(const at::Tensor& tensor);
// Has our device's key, lazy or not.
bool has_our_device(const at::Tensor& tensor);
// A fresh root holding `value`. REQUIRES: offset 0.
at::Tensor make_tensor(LazyValue value, MetaRef meta);
// A view of `source`: `steps` (null: none) on top of its chain, laid out as `meta` from its own offset on. `value` may
// be empty (it is then derived at the first read).
at::Tensor make_view(const LazyTensor& source, const ViewChain& steps, const Meta& meta, LazyValue value);
// A view of a whole root; of `source`, if that is given.
at::Tensor make_view_of_root(const c10::Storage& root, std::vector<ViewStep> steps, const Meta& meta,
                             const LazyTensor* source = nullptr);

// What lies in the storage of `source` at these sizes, strides and offset, seen as this dtype. Throws as eager does
// where that is beyond the storage.
at::Tensor strided_view(const LazyTensor& source, const Meta& meta);

// `keep` is told of a tensor that was annotated and shows other memory now, and what was said of it.
using KeepAnnotation = void (*)(LazyTensor& tensor, const Annotation& had);
void set_keep_annotation(KeepAnnotation keep);

}  // namespace spmdx::bridge
