// SPDX-License-Identifier: Apache-2.0
// Gradients of leaves: noted as autograd stores them, so that they lie as their parameters do. Nobody looks at `.grad`
// later: other threads drop gradients meanwhile, and PyTorch gives up the GIL in the middle of that.
#include "bridge/gradients.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <algorithm>

#include "bridge/recorder.h"

namespace spmdx::bridge {
namespace {

// The leaf whose gradient autograd stores now; undefined: it does something else.
at::Tensor leaf_of_current_node() {
  const auto node = torch::autograd::get_current_node();
  const auto* stores = dynamic_cast<const torch::autograd::AccumulateGrad*>(node.get());
  return stores && as_lazy(stores->variable) ? stores->variable : at::Tensor();
}

// Whether nobody else sees what this is a view of. Autograd keeps the base of its views.
bool alone(const at::Tensor& view) {
  const long views = as_lazy(view)->root_storage().use_count();
  return view.is_view() ? views == 2 && view._base().use_count() == 1 : views == 1;
}

// A view of what nobody else sees becomes a whole of its own, which can lie otherwise.
at::Tensor on_its_own(const at::Tensor& view) {
  LazyTensor& lazy = *as_lazy(view);
  Recorder& recorder = Recorder::instance();
  return make_tensor(recorder.lazy(recorder.read(lazy)), share(meta_of(view)));
}

}  // namespace

at::Tensor stolen(const at::Tensor& gradient) {
  const LazyTensor* lazy = as_lazy(gradient);
  if (!lazy || !lazy->chain()) return {};
  const at::Tensor leaf = leaf_of_current_node();
  if (!leaf.defined() || leaf.grad().defined()) return {};  // a hook's doing, after autograd has stored it
  return alone(gradient) ? on_its_own(gradient) : at::Tensor();
}

void note_gradient(const c10::IValue& result) {
  const at::Tensor leaf = leaf_of_current_node();
  if (!leaf.defined() || !result.isTensor()) return;
  const LazyTensor* gradient = as_lazy(result.toTensor());
  if (leaf.grad().defined() && as_lazy(leaf.grad()) != gradient) return;  // a hook's
  if (gradient && gradient->sizes() == leaf.sizes()) gradient->root().gradient_of = as_lazy(leaf)->root().serial;
}

// By the gradients that this graph computes, the input that each lies like: its leaf.
std::unordered_map<const Root*, uint32_t> Recorder::Impl::gradients() {
  const std::vector<RootRef> alive = live_roots();  // in order of their serials
  std::vector<const Root*> pending_gradients;
  for (const RootRef& ref : alive)
    if (root_of(ref).gradient_of && pending(root_of(ref).current)) pending_gradients.push_back(&root_of(ref));
  std::stable_sort(pending_gradients.begin(), pending_gradients.end(),
                   [](const Root* a, const Root* b) { return a->gradient_of < b->gradient_of; });
  std::unordered_map<const Root*, uint32_t> tied;
  for (const Root* gradient : pending_gradients) {
    const auto leaf =
        std::lower_bound(alive.begin(), alive.end(), gradient->gradient_of,
                         [](const RootRef& ref, uint64_t serial) { return root_of(ref).serial < serial; });
    if (leaf == alive.end() || root_of(*leaf).serial != gradient->gradient_of) continue;
    Root& root = root_of(*leaf);
    if (root.current.data && !has_failed(*root.current.data))
      read(root);  // also a parameter whose value this graph does not need
    const auto input = input_of.find(root.previous ? root.previous.get() : root.current.data.get());
    if (input != input_of.end()) tied.emplace(gradient, input->second);
  }
  return tied;
}

}  // namespace spmdx::bridge
