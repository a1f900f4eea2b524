// SPDX-License-Identifier: Apache-2.0
// The lazy tensor: a TensorImpl with a chain of views from an alias root; the root holds the current value.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>

#include <memory>
#include <vector>

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

// What the user wrote for a tensor. That of a whole belongs to its root, that of a view to the view: in-place updates
// keep it.
struct Annotation {
  ShardingRef sharding = nullptr;
  SourceId source = 0;
  bool state = false;                                      // a parameter or other state, see Input::state
  std::shared_ptr<const PartitionSpec> written = nullptr;  // where it says more than the sharding
};

// Declared (logical, eager-like) metadata of a tensor.
struct Meta {
  c10::ScalarType dtype = c10::ScalarType::Float;
  std::vector<int64_t> sizes, strides;
  int64_t offset = 0;
  bool defined = true;
  // A view that shows the conjugate, or the negative, of memory: PyTorch's bits. The steps of such a tensor hold the op
  // itself, so that what is read or written through it is what it shows; the bits are for those who ask PyTorch.
  bool conjugate = false, negative = false;
};
using MetaRef = std::shared_ptr<const Meta>;

// One step of a view chain: the recorded call (its first operand is the source) and which result it is.
struct ViewStep {
  CallRef call;
  std::vector<Param> params;
  uint32_t result = 0;
  Meta in, out;
};
using ViewChain = std::shared_ptr<const std::vector<ViewStep>>;

// The layout that a whole had until its storage grew, and the steps that lead to it from the next one.
struct Outgrown {
  MetaRef base;
  ViewChain steps;
};

// The alias root. Views share it through storage_; data pointer is null.
class Root final : public c10::StorageImpl {
 public:
  Root(MetaRef base, LazyValue value);
  ~Root() override;
  LazyValue current;
  uint64_t generation = 1;                  // bumped by every write
  uint64_t serial = 0;                      // order of creation
  Root *newer = nullptr, *older = nullptr;  // in the list of roots that are alive
  MetaRef base;                             // declared layout of the whole, offset 0
  std::vector<Outgrown> outgrown;           // layouts before each growth, in order
  const Meta& layout(size_t growths) const { return growths < outgrown.size() ? *outgrown[growths].base : *base; }
  bool cut_short = false;    // its storage holds fewer bytes than `base` has
  uint64_t gradient_of = 0;  // the serial of the leaf whose gradient it is
  std::unique_ptr<Annotation> annotation;
  DataRef previous;  // what it held when the graph being recorded first wrote it: for ties
};
using RootRef = c10::intrusive_ptr<c10::StorageImpl>;
inline Root& root_of(const RootRef& ref) { return static_cast<Root&>(*ref); }
// Every root that is still reachable, in order of creation. Thread-safe.
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
Meta meta_of(const at::Tensor& tensor);
void set_bits(const at::Tensor& tensor, const Meta& meta);
// The layout of a whole: `meta` at offset 0, showing memory as it is.
MetaRef share(Meta meta);
TensorType type_of(const Meta& meta);
std::vector<int64_t> contiguous_strides(const std::vector<int64_t>& sizes);
// A fresh root holding `value`. REQUIRES: offset 0.
at::Tensor make_tensor(LazyValue value, MetaRef meta);
// A view of `source`: `steps` (null: none) on top of its chain, laid out as `meta` from its own offset on. `value` may
// be empty (it is then derived at the first read).
at::Tensor make_view(const LazyTensor& source, const ViewChain& steps, const Meta& meta, LazyValue value);
// A view of a whole root; of `source`, if that is given.
at::Tensor make_view_of_root(const c10::Storage& root, std::vector<ViewStep> steps, const Meta& meta,
                             const LazyTensor* source = nullptr);

}  // namespace spmdx::bridge
