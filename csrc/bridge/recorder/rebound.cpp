// SPDX-License-Identifier: Apache-2.0
// Roots that took over data without a step: noted as long as a step from before may fail, and undone if it does.
#include "bridge/recorder/engine.h"
#include "bridge/recorder/recorder_state.h"
#include "bridge/tensor/tensor.h"
#include "bridge/world/c10d_comm.h"

namespace spmdx::bridge {

bool RecorderState::at_start_of_step() const { return graph.nodes.empty() && engine().idle() && !has_unseen_failure(); }

// One process that has no step to wait for need not note it. Several processes have to agree on what is undone, and
// they compare numbers of steps only.
void RecorderState::note_rebound(Root& root, DataRef before) {
  if (!before) return;
  if (comm().processes().count == 1 && at_start_of_step()) {
    rebound.clear();  // no step may still fail, and notes hold data
    return;
  }
  const RootRef ref = RootRef::unsafe_reclaim_from_nonowning(&root);
  rebound.push_back({c10::weak_intrusive_ptr<c10::StorageImpl>(ref), std::move(before), nullptr});
}

// Lets go of what was written beside earlier steps that have ended without an error.
void RecorderState::send_rebound(const DataRef& step) {
  std::erase_if(rebound, [&](Rebound& one) {
    if (!one.step) one.step = step;
    return !one.step || (one.step != step && one.step->ready() && !has_failed(*one.step));
  });
}

void RecorderState::undo_rebound() {
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
    ++root.writes;
  }
  rebound.clear();
}

}  // namespace spmdx::bridge
