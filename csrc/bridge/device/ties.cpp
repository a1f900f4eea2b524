// SPDX-License-Identifier: Apache-2.0
// Wholes of alias roots, and views of one root moved to a copy of it.
#include "bridge/device/ties.h"

#include "base/error.h"
#include "bridge/recorder/recorder.h"
#include "bridge/tensor/meta.h"
#include "bridge/tensor/strided.h"
#include "bridge/tensor/tensor.h"

namespace spmdx::bridge {
namespace {

LazyTensor& ours(const at::Tensor& tensor) {
  LazyTensor* lazy = as_lazy(tensor);
  internal_check(lazy, "ties of a tensor that is not ours");
  return *lazy;
}

}  // namespace

uint64_t memory_id(const at::Tensor& tensor) { return ours(tensor).root().serial; }

bool shows_whole(const at::Tensor& tensor) {
  const LazyTensor& lazy = ours(tensor);
  return !lazy.chain() && tensor.sizes() == c10::IntArrayRef(lazy.root().base->sizes) &&
         tensor.strides() == c10::IntArrayRef(lazy.root().base->strides);
}

bool is_strided(const at::Tensor& tensor) {
  const LazyTensor& lazy = ours(tensor);
  const Meta& whole = *lazy.root().base;
  if (tensor.scalar_type() != whole.dtype && !is_dense(whole)) return false;
  return !tensor.is_conj() && !tensor.is_neg();
}

bool shares_memory(const at::Tensor& tensor) { return ours(tensor).root_storage().use_count() > 1; }

at::Tensor whole_of(const at::Tensor& tensor) {
  Recorder::Lock lock;
  const LazyTensor& lazy = ours(tensor);
  return make_view_of_root(lazy.root_storage(), {}, *lazy.root().base);
}

at::Tensor copy_of_whole(const at::Tensor& tensor) {
  Recorder::Lock lock;
  auto& recorder = Recorder::instance();
  const at::Tensor whole = whole_of(tensor);
  LazyTensor& lazy = ours(whole);
  const at::Tensor copy = make_tensor(recorder.held(recorder.read(lazy)), lazy.root().base);
  if (const auto& annotation = lazy.root().annotation) recorder.annotate(copy, *annotation);
  return copy;
}

void show_same_of(const at::Tensor& tensor, const at::Tensor& whole, const at::Tensor& source) {
  Recorder::Lock lock;
  const ViewChain& chain = ours(source).chain();
  const at::Tensor view =
      make_view_of_root(ours(whole).root_storage(), chain ? *chain : std::vector<ViewStep>{}, meta_of(source));
  ours(tensor).become(ours(view));
}

}  // namespace spmdx::bridge
