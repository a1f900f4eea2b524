// SPDX-License-Identifier: Apache-2.0
// Gradients of leaves are noted when autograd stores them, so that they lie as their parameters do. `.grad` is not read
// later, since other threads may drop gradients meanwhile, and PyTorch gives up the GIL while it drops a tensor.
#include "bridge/recorder/gradients.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>

#include "bridge/recorder/recorder_state.h"

namespace spmdx::bridge {
namespace {

// A run of an AccumulateGrad, which runs once in each backward pass.
struct Run {
  const torch::autograd::Node* node = nullptr;
  int pass = -1;

  bool operator==(const Run&) const = default;
};

constexpr size_t kNested = 64;  // backward passes in hooks of backward passes, in one thread; PyTorch allows 60

// Runs that have stored their gradient, of this backward pass and of the passes around it. An op that comes later in
// such a run is one of a hook.
thread_local std::vector<Run> stored;

Run current_run() { return {torch::autograd::get_current_node().get(), torch::autograd::get_current_graph_task_id()}; }

void note_stored(const Run& run) {
  std::erase_if(stored, [&](const Run& other) { return other.pass >= run.pass; });  // these have ended
  if (stored.size() == kNested) stored.erase(stored.begin());
  stored.push_back(run);
}

}  // namespace

const LazyTensor* leaf_of_current_node() {
  if (torch::autograd::get_current_graph_task_id() < 0) return nullptr;  // no backward pass; asked for every op
  const Run run = current_run();
  const auto* stores = dynamic_cast<const torch::autograd::AccumulateGrad*>(run.node);
  if (!stores || std::find(stored.begin(), stored.end(), run) != stored.end()) return nullptr;
  return as_lazy(stores->variable);
}

void note_gradient(const c10::IValue& result) {
  const LazyTensor* leaf = leaf_of_current_node();
  if (!leaf) return;
  note_stored(current_run());
  const LazyTensor* gradient = result.isTensor() ? as_lazy(result.toTensor()) : nullptr;
  if (gradient && gradient->sizes() == leaf->sizes()) gradient->root().gradient_of = leaf->root().serial;
}

GradientInputs RecorderState::gradients() {
  const std::vector<RootRef> changed = changed_roots();
  std::vector<const Root*> pending_gradients;
  for (const RootRef& ref : changed)
    if (root_of(ref).gradient_of && pending(root_of(ref).current)) pending_gradients.push_back(&root_of(ref));
  if (pending_gradients.empty()) return {};
  const std::vector<RootRef> alive = live_roots();  // in order of their serials
  std::stable_sort(pending_gradients.begin(), pending_gradients.end(),
                   [](const Root* a, const Root* b) { return a->gradient_of < b->gradient_of; });
  GradientInputs tied;
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
