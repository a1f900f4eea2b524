// SPDX-License-Identifier: Apache-2.0
// What happens to pending values when their graph does not run: computed without shardings, or undone.
#include <ATen/ops/empty.h>

#include "bridge/aten_backend.h"
#include "bridge/c10d_comm.h"
#include "bridge/fetch.h"
#include "bridge/place.h"
#include "bridge/plan_only.h"
#include "bridge/recorder.h"
#include "sharding/shards.h"

namespace spmdx::bridge {

at::Tensor assembled(const Data& data, const Shards& shards) {
  const ShardingRef sharding = data.sharding();
  if (!sharding || sharding->used() == 0) return to_host(tensor_of(shards.at(0)));
  const Mesh& mesh = *sharding->mesh;
  const AtomSet used = sharding->used();
  at::Tensor whole = at::empty(data.type().shape, at::TensorOptions().dtype(to_scalar_type(data.type().dtype)));
  for (int64_t i = 0; i < num_distinct(mesh, used); ++i) {
    if (!shards.at(i)) continue;
    at::Tensor part = whole;
    const Box box = local_box(*sharding, data.type().shape, representative(mesh, used, i));
    for (size_t d = 0; d < box.size(); ++d) part = part.narrow(static_cast<int64_t>(d), box[d].start, box[d].extent);
    part.copy_(tensor_of(shards[i]));
  }
  return whole;
}

bool has_failed(const Data& data) {
  if (data.is_hollow()) return !planning_only();
  if (!data.ready()) return false;
  try {
    data.wait();
    return false;
  } catch (...) {
    return true;
  }
}

namespace {

DataRef whole_of(const DataRef& data) {
  if (!data->sharding()) return data;
  if (data->is_hollow()) return hollow_data(data->type());
  const DataRef here = held_here(data);
  NoGil no_gil;
  KernelGuard kernels_only;
  return std::make_shared<Data>(here->type(), nullptr, Shards{lent(assembled(*here, here->wait()))});
}

}  // namespace

// The graph cannot be planned as annotated. Values that were never computed would be lost with it, a fresh model's
// parameters among them: they are computed whole, on one device. Annotations stay on their tensors.
void Recorder::Impl::compute_unsharded() {
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
void Recorder::Impl::roll_back(std::exception_ptr error) {
  std::vector<RootRef> outgrown;
  for (auto& ref : live_roots()) {
    Root& root = root_of(ref);
    const DataRef& data = root.current.data;
    const bool lost = pending(root.current) || (data && !data->is_hollow() && has_failed(*data));
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

// Whether nothing that may still fail was recorded before. What a program that runs alone does here is done; where
// there are more, they have to agree on what was undone, and only steps are counted.
bool Recorder::Impl::at_start_of_step() const {
  return graph.nodes.empty() && engine().idle() && !has_unseen_failure();
}

void Recorder::Impl::note_rebound(Root& root, DataRef before) {
  if (!before || (comm().processes().count == 1 && at_start_of_step())) return;
  const RootRef ref = RootRef::unsafe_reclaim_from_nonowning(&root);
  rebound.push_back({c10::weak_intrusive_ptr<c10::StorageImpl>(ref), std::move(before), nullptr});
}

// What was written beside earlier steps that have ended well is let go.
void Recorder::Impl::send_rebound(const std::vector<PlannedPart>& parts) {
  const DataRef step = parts.empty() || parts[0].outputs.empty() ? nullptr : parts[0].outputs[0];
  std::erase_if(rebound, [&](Rebound& one) {
    if (!one.step) one.step = step;
    return !one.step || (one.step != step && one.step->ready() && !has_failed(*one.step));
  });
}

void Recorder::Impl::undo_rebound() {
  for (size_t i = rebound.size(); i-- > 0;) {
    const auto& [weak, before, step] = rebound[i];
    const RootRef ref = weak.lock();
    if (!ref || (step && !has_failed(*step))) continue;
    DataRef good = before;
    while (good && has_failed(*good)) good = good->fallback();
    Root& root = root_of(ref);
    if (!good || good->type().shape != root.base->sizes) continue;  // it grew since, and keeps what it holds
    root.current = {0, kNone, std::move(good)};
    root.previous = nullptr;
    ++root.generation;
  }
  rebound.clear();
}

}  // namespace spmdx::bridge
