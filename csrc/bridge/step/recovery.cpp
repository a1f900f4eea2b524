// SPDX-License-Identifier: Apache-2.0
// What happens to pending values when their graph does not run: computed without shardings, or undone.
#include "bridge/backend/buffer.h"
#include "bridge/backend/shard_device.h"
#include "bridge/python/gil.h"
#include "bridge/recorder/recorder_state.h"
#include "bridge/step/assembled.h"
#include "bridge/step/fetch.h"
#include "bridge/tensor/abstract.h"
#include "bridge/tensor/meta.h"
#include "bridge/tensor/tensor.h"

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

}  // namespace

// The graph cannot be planned as annotated. Values that were never computed would be lost with it, a fresh model's
// parameters among them: they are computed whole, on one device. Annotations stay on their tensors.
void RecorderState::compute_unsharded() {
  Graph whole = graph;
  whole.constraints.clear();
  std::vector<RootRef> owners;
  for (auto& ref : live_roots()) {
    Root& root = root_of(ref);
    if (!pending(root.current)) continue;
    if (DataRef existing = data_of(root.current.id)) {  // it was only to be moved
      root.current = {0, kNone, std::move(existing)};
      root.previous = nullptr;
      continue;
    }
    whole.outputs.push_back({.value = root.current.id});
    owners.push_back(std::move(ref));
  }
  std::vector<DataRef> sources;
  for (Input& input : whole.inputs) input.annotation = nullptr;
  for (const DataRef& data : inputs) sources.push_back(whole_of(data));
  std::vector<PlannedPart> parts;
  parts.push_back(planned(std::move(whole), std::move(sources), std::move(owners)));
  send(std::move(parts));
  reset();
}

// Drops the pending graph. Roots go back to what was last computed; those that never were hold the error (null: the one
// that they hold).
void RecorderState::roll_back(std::exception_ptr error) {
  std::vector<RootRef> outgrown;
  for (auto& ref : live_roots()) {
    Root& root = root_of(ref);
    const DataRef& data = root.current.data;
    const bool lost = pending(root.current) || (data && !data->is_abstract() && has_failed(*data));
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
    ++root.generation;
    if (good->type().shape != root.base->sizes) outgrown.push_back(std::move(ref));
  }
  undo_rebound();
  reset();
  for (const RootRef& ref : outgrown) follow_growth(root_of(ref));
}

}  // namespace spmdx::bridge
