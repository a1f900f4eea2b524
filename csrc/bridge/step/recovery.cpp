// SPDX-License-Identifier: Apache-2.0
// What happens to pending values when their graph does not run: computed without shardings, or undone.
#include "bridge/step/recovery.h"

#include <utility>

#include "bridge/backend/buffer.h"
#include "bridge/backend/shard_device.h"
#include "bridge/python/gil.h"
#include "bridge/step/assembled.h"
#include "bridge/step/fetch.h"
#include "bridge/step/submit.h"
#include "bridge/tensor/abstract.h"
#include "bridge/tensor/meta.h"
#include "bridge/tensor/tensor.h"
#include "graph/rewrite.h"

namespace spmdx::bridge {

namespace {

DataRef whole_of(const DataRef& data) {
  if (!data->sharding()) return data;
  if (data->is_abstract()) return abstract_data(data->type());
  const DataRef here = held_here(data);
  NoGil no_gil;
  KernelGuard kernels_only;
  return std::make_shared<Data>(here->type(), nullptr, Shards{lent(assembled(*here, here->wait()))});
}

// The graph keeps the inputs that its outputs need, without annotations. Returns their data, each whole.
std::vector<DataRef> keep_needed_inputs(const RecorderState& state, Graph& whole) {
  const std::vector<bool> needed = needed_values(whole, whole.outputs);
  std::vector<Input> kept;
  std::vector<DataRef> data;
  for (size_t i = 0; i < whole.inputs.size(); ++i) {
    if (!needed[whole.inputs[i].value]) continue;
    kept.push_back(std::move(whole.inputs[i]));
    kept.back().annotation = nullptr;
    data.push_back(whole_of(state.inputs[i]));
  }
  whole.inputs = std::move(kept);
  drop_dead(whole);
  return data;
}

}  // namespace

void compute_unsharded(RecorderState& state) {
  Graph whole = state.graph;
  whole.constraints.clear();
  std::vector<RootRef> owners;
  for (auto& ref : changed_roots()) {
    Root& root = root_of(ref);
    if (!state.pending(root.current)) continue;
    if (DataRef existing = state.data_of(root.current.id)) {  // it was only to be moved
      root.current = {0, kNone, std::move(existing)};
      root.previous = nullptr;
      continue;
    }
    whole.outputs.push_back({.value = root.current.id});
    owners.push_back(std::move(ref));
  }
  std::vector<DataRef> data_of_inputs = keep_needed_inputs(state, whole);
  std::vector<PlannedPart> parts;
  parts.push_back(planned(whole, std::move(data_of_inputs), std::move(owners)));
  queue_parts(state, std::move(parts));
  state.reset();
}

void roll_back(RecorderState& state, std::exception_ptr error) {
  std::vector<RootRef> outgrown;
  for (auto& ref : live_roots()) {
    Root& root = root_of(ref);
    note_change(root);  // what it goes back to may lie otherwise than it is annotated
    const DataRef& data = root.current.data;
    if (data) data->is_first_read();  // processes may have come to different places: from here on they count alike
    const bool lost = state.pending(root.current) || (data && !data->is_abstract() && has_failed(*data));
    if (!lost) continue;
    DataRef good = root.current.data ? root.current.data : root.previous;
    while (good && has_failed(*good)) good = good->fallback();
    if (!good && !error && data) continue;
    if (!good) {
      good = std::make_shared<Data>(type_of(*root.base));
      good->fail(error ? error : std::make_exception_ptr(std::runtime_error("a step failed before this tensor's")));
    }
    root.current = {0, kNone, good};
    root.previous = nullptr;
    ++root.writes;
    if (good->type().shape != root.base->sizes) outgrown.push_back(std::move(ref));
  }
  state.undo_rebound();
  state.reset();
  for (const RootRef& ref : outgrown) state.follow_growth(root_of(ref));
}

}  // namespace spmdx::bridge
