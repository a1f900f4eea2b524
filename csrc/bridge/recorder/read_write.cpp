// SPDX-License-Identifier: Apache-2.0
// Reads and writes of tensors, through their views; storages that grow.
#include "bridge/backend/aten_names.h"
#include "bridge/python/source.h"
#include "bridge/recorder/recorder.h"
#include "bridge/recorder/recorder_state.h"
#include "bridge/recorder/values.h"
#include "bridge/recorder/write_back.h"
#include "bridge/tensor/annotation.h"
#include "bridge/tensor/meta.h"
#include "bridge/tensor/storage.h"
#include "bridge/tensor/strided.h"
#include "bridge/tensor/tensor.h"

namespace spmdx::bridge {

ValueId Recorder::read(LazyTensor& tensor) {
  Lock lock;
  Root& root = tensor.root();
  if (root.too_small) require_storage(tensor);
  if (root.current.data && tensor.requires_grad()) root.current.data->is_first_read();  // it outlives the graph
  if (!tensor.chain()) return state_->read(root);
  if (tensor.cached_writes == root.writes && state_->pending(tensor.cached)) return tensor.cached.id;
  ValueId value = state_->read(root);
  for (const auto& step : *tensor.chain()) value = record(step.call, {value}, step.params) + step.result;
  state_->cache(tensor, value);
  return value;
}

void Recorder::write(LazyTensor& tensor, ValueId value) {
  Lock lock;
  Root& root = tensor.root();
  const ValueId seen = value;
  if (root.too_small) require_storage(tensor);
  if (tensor.chain()) value = write_back(*tensor.chain(), state_->read(root), value);
  if (root.current.data) root.previous = root.current.data;
  root.current = held(value);
  note_change(root);
  if (root.current.data) {  // no result of the step: nothing to tie
    if (state_->capture) state_->capture->refuse("a tensor takes over what another one holds");
    state_->note_rebound(root, std::move(root.previous));
    root.previous = nullptr;
  }
  ++root.writes;
  state_->cache(tensor, seen);
}

ValueId RecorderState::grown(const Outgrown& from, const Meta& to, ValueId value) {
  const ValueId zeros = full_int(to.sizes, 0, to_dtype(to.dtype));
  return numel(from.base->sizes) == 0 ? zeros : write_back(*from.steps, zeros, value);
}

void RecorderState::follow_growth(Root& root) {
  const DataRef data = root.current.data;
  size_t at = root.outgrown.size();
  while (at > 0 && root.layout(at).sizes != data->type().shape) --at;
  if (at == root.outgrown.size()) return;
  ValueId value = input(data);
  for (; at < root.outgrown.size(); ++at) value = grown(root.outgrown[at], root.layout(at + 1), value);
  root.current = {epoch, value, nullptr};
  note_change(root);
}

void Recorder::grow(Root& root, const Meta& whole) {
  Lock lock;
  if (state_->capture) state_->capture->refuse("a storage grows");
  Outgrown from{root.base, std::make_shared<const std::vector<ViewStep>>(strided_steps(whole, *root.base))};
  const ValueId value = RecorderState::grown(from, whole, state_->read(root));
  if (root.current.data) root.previous = root.current.data;
  root.outgrown.push_back(std::move(from));
  root.base = share(whole);
  if (root.annotation)
    warn_of_lost_annotation("made at " + source_text(root.annotation->source) +
                            " is gone: the storage of the tensor grew, and the tensor shows a part of it now. Expected "
                            "a storage of the tensor's size. Call spmdx.mark_sharding again.");
  root.annotation.reset();
  root.current = lazy(value);
  note_change(root);
  ++root.writes;
}

}  // namespace spmdx::bridge
