// SPDX-License-Identifier: Apache-2.0
// Annotations: what the user writes for a tensor, and how a tensor that shows other memory keeps it.
#include "base/error.h"
#include "bridge/python/source.h"
#include "bridge/recorder/recorder.h"
#include "bridge/recorder/recorder_state.h"
#include "bridge/tensor/abstract.h"
#include "bridge/tensor/annotation.h"
#include "bridge/tensor/tensor.h"

namespace spmdx::bridge {
namespace {

bool fits(const Sharding& sharding, c10::IntArrayRef sizes) {
  if (sharding.dims.size() != sizes.size()) return false;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (!is_legal(*sharding.mesh, sharding.dims[d], sizes[d])) return false;
  }
  return true;
}

}  // namespace

void RecorderState::note_said(ValueId value, const Annotation& annotation) {
  if (annotation.schedule || annotation.loaded)
    said[value] = annotation;
  else
    said.erase(value);
}

void RecorderState::constrain(ValueId value, const Annotation& annotation) {
  note_said(value, annotation);
  has_stages |= !annotation.sharding->place.whole();
  graph.constraints.push_back({value, annotation.sharding, annotation.source, annotation.state});
}

void RecorderState::annotate(LazyTensor& tensor, const Annotation& annotation) {
  Root& root = tensor.root();
  if (tensor.chain()) {
    if (!planning_only()) tensor.of_view = std::make_shared<const Annotation>(annotation);
    if (tensor.cached_writes == root.writes && pending(tensor.cached)) constrain(tensor.cached.id, annotation);
    return;
  }
  root.annotation = std::make_unique<Annotation>(annotation);
  annotated = true;
  note_change(root);
  if (!root.current.data) {
    constrain(root.current.id, annotation);
  } else if (input_of.contains(root.current.data.get())) {
    annotate_input(root);  // it was read before; what is said last holds
  }
}

void Recorder::annotate(const at::Tensor& tensor, const Annotation& said) {
  Lock lock;
  LazyTensor* lazy_tensor = as_lazy(tensor);
  internal_check(lazy_tensor, "annotate of a tensor that is not ours");
  if (lazy_tensor->chain()) lazy_tensor->of_view = nullptr;
  if (!said.sharding) {
    if (!lazy_tensor->chain()) lazy_tensor->root().annotation.reset();
    return;
  }
  if (lazy_tensor->chain()) read(*lazy_tensor);  // what a view shows now is constrained, too
  state_->annotate(*lazy_tensor, said);
}

void Recorder::keep_annotation(LazyTensor& tensor, const Annotation& had) {
  Lock lock;
  if (tensor.annotation()) return;
  if (fits(*had.sharding, tensor.sizes())) return state_->annotate(tensor, had);
  warn_of_lost_annotation("made at " + source_text(had.source) + " is gone: its spec does not fit the shape [" +
                          c10::str(c10::Join(", ", tensor.sizes())) +
                          "] that the tensor has now. Expected data of the same rank. Call spmdx.mark_sharding again.");
}

}  // namespace spmdx::bridge
