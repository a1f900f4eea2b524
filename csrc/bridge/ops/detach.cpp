// SPDX-License-Identifier: Apache-2.0
// detach, which autograd calls when it stores a gradient.
#include "bridge/record/call/handlers.h"
#include "bridge/record/call/op_info.h"
#include "bridge/record/operands.h"
#include "bridge/recorder/gradients.h"
#include "bridge/recorder/recorder.h"
#include "bridge/tensor/meta.h"
#include "bridge/tensor/tensor.h"

namespace spmdx::bridge {
namespace {

// Whether no other tensor shows the memory of this view. Autograd keeps a reference to the base of a view.
bool alone(const at::Tensor& view) {
  const long views = as_lazy(view)->root_storage().use_count();
  return view.is_view() ? views == 2 && view._base().use_count() == 1 : views == 1;
}

// The view's elements as a tensor with an alias root of its own, which may be cut in another way than the old one.
at::Tensor on_its_own(const at::Tensor& view) {
  LazyTensor& lazy = *as_lazy(view);
  Recorder& recorder = Recorder::instance();
  return make_tensor(recorder.lazy(recorder.read(lazy)), share(meta_of(view)));
}

// Takes over only for a gradient that autograd stores now; any other detach is an ordinary view.
bool detach(const OpInfo& info, Stack* stack) {
  const at::Tensor gradient = arguments(info, *stack)[0].toTensor();
  const LazyTensor* lazy = as_lazy(gradient);
  const bool is_own = lazy && lazy->chain() && leaf_of_current_node() && alone(gradient);
  if (is_own) finish(info, stack, on_its_own(gradient));
  return is_own;
}

void add_detach_handler() { add_handler("aten.detach", detach); }

const HandlersAtLoad detach_handler(add_detach_handler);

}  // namespace
}  // namespace spmdx::bridge
