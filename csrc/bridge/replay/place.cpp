// SPDX-License-Identifier: Apache-2.0
// Place: comparisons of roots and of tensors with what they were.
#include "bridge/replay/place.h"

#include <c10/core/InferenceMode.h>

#include <tuple>

namespace spmdx::bridge {
namespace {

auto fields(const Meta& meta) {
  return std::tie(meta.dtype, meta.sizes, meta.strides, meta.offset, meta.defined, meta.conjugate, meta.negative);
}

// Schedules are interned.
bool same(const Annotation* a, const Annotation* b) {
  if (!a || !b) return a == b;
  return a->sharding == b->sharding && a->state == b->state && a->schedule == b->schedule && a->loaded == b->loaded;
}

bool same_step(const ViewStep& a, const ViewStep& b) {
  if (!(*a.call == *b.call) || a.result != b.result || a.params.size() != b.params.size()) return false;
  for (size_t i = 0; i < a.params.size(); ++i)
    if (a.params[i].integer != b.params[i].integer) return false;
  return true;
}

bool same_chain(const ViewChain& a, const ViewChain& b) {
  if (a == b) return true;
  return a && b && std::equal(a->begin(), a->end(), b->begin(), b->end(), same_step);
}

}  // namespace

bool same(const Meta& a, const Meta& b) { return fields(a) == fields(b); }

RootState state_of(const Root& root) {
  return {root.base, root.outgrown.size(), root.annotation ? std::optional(*root.annotation) : std::nullopt};
}

bool is_in(const Root& root, const RootState& state) {
  if (root.base != state.base && !same(*root.base, *state.base)) return false;
  if (root.too_small || root.outgrown.size() != state.growths) return false;
  return same(root.annotation.get(), state.annotation ? &*state.annotation : nullptr);
}

Shown shown_by(const at::Tensor& tensor) {
  const LazyTensor& lazy = *as_lazy(tensor);
  return {meta_of(tensor), lazy.chain(), lazy.of_view, tensor.requires_grad(), tensor.is_leaf(), tensor.is_inference()};
}

bool shows(const at::Tensor& tensor, const Shown& shown) {
  const LazyTensor& lazy = *as_lazy(tensor);
  if (tensor.requires_grad() != shown.requires_grad || tensor.is_leaf() != shown.leaf) return false;
  if (tensor.is_inference() != shown.inference) return false;
  if (tensor.sizes() != c10::IntArrayRef(shown.meta.sizes) || tensor.scalar_type() != shown.meta.dtype) return false;
  if (tensor.strides() != c10::IntArrayRef(shown.meta.strides) || tensor.storage_offset() != shown.meta.offset)
    return false;
  return same_chain(lazy.chain(), shown.chain) && same(lazy.of_view.get(), shown.annotation.get());
}

at::Tensor show(const RootRef& root, const Shown& shown) {
  const c10::InferenceMode mode(shown.inference);
  const std::vector<ViewStep> steps = shown.chain ? *shown.chain : std::vector<ViewStep>();
  at::Tensor tensor = make_view_of_root(c10::Storage(root), steps, shown.meta);
  as_lazy(tensor)->of_view = shown.annotation;
  return tensor;
}

RootRef root_ref(const at::Tensor& tensor) { return RootRef::unsafe_reclaim_from_nonowning(&as_lazy(tensor)->root()); }

}  // namespace spmdx::bridge
