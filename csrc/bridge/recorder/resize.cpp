// SPDX-License-Identifier: Apache-2.0
// resize_ of tensors and of storages: elements keep their places in memory, also for other views of it.
#include "bridge/recorder/resize.h"

#include <ATen/EmptyTensor.h>

#include "bridge/backend/aten_names.h"
#include "bridge/recorder/recorder.h"
#include "bridge/recorder/values.h"
#include "bridge/tensor/meta.h"
#include "bridge/tensor/storage.h"
#include "bridge/tensor/tensor.h"

namespace spmdx::bridge {
namespace {

// The layout of the whole once its storage holds `target`: that of `target`, or one row.
Meta grown_layout(const Root& root, const Meta& target) {
  const bool dense = meta_tensor(target).is_non_overlapping_and_dense();
  if (target.offset == 0 && target.dtype == root.base->dtype && dense) return target;
  const auto item = c10::elementSize(root.base->dtype);
  return {root.base->dtype, {static_cast<int64_t>((bytes_of(target) + item - 1) / item)}, {1}, 0, true};
}

void hold(Root& root, const Meta& target) {
  const size_t needed = bytes_of(target);
  if (needed <= root.nbytes()) return;
  if (needed > bytes_of(*root.base)) Recorder::instance().grow(root, grown_layout(root, target));
  root.set_nbytes(needed);
  // A part of the last element is not cut off: what was to be held may have a smaller dtype than the whole.
  root.too_small = needed + c10::elementSize(root.base->dtype) <= bytes_of(*root.base);
}

}  // namespace

Root* adopted(const c10::Storage& storage) {
  Recorder::Lock lock;
  auto* root = dynamic_cast<Root*>(storage.unsafeGetStorageImpl());
  if (!root || root->serial) return root;
  root->current = Recorder::instance().lazy(full_int(root->base->sizes, 0, to_dtype(root->base->dtype)));
  list_root(RootRef::unsafe_reclaim_from_nonowning(root));
  return root;
}

void resize(const at::Tensor& self, const Shape& sizes, const Shape& strides) {
  LazyTensor& lazy = *as_lazy(self);
  Meta target = meta_of(self);
  target.sizes = sizes;
  target.strides = strides;
  hold(lazy.root(), target);
  lazy.become(*as_lazy(strided_view(lazy, target)));
}

void resize_storage(const c10::Storage& storage, size_t bytes) {
  Recorder::Lock lock;
  Root* ours = adopted(storage);
  TORCH_CHECK(ours, "the storage is not one of spmdx. Expected untyped_storage() of an spmdx tensor.");
  Root& root = *ours;
  const auto item = c10::elementSize(root.base->dtype);
  const Meta row{root.base->dtype, {static_cast<int64_t>((bytes + item - 1) / item)}, {1}, 0, true};
  if (bytes > root.nbytes()) return hold(root, row);
  root.set_nbytes(bytes);
  root.too_small = bytes < bytes_of(*root.base);
  if (bytes > 0 || numel(root.base->sizes) == 0) return;
  // One zero that is seen everywhere takes no memory.
  const at::Tensor whole = make_view_of_root(storage, {}, *root.base);
  root.too_small = false;
  Recorder::instance().write(*as_lazy(whole), expand(full_int({}, 0, to_dtype(root.base->dtype)), root.base->sizes));
  root.too_small = true;
}

}  // namespace spmdx::bridge
