// SPDX-License-Identifier: Apache-2.0
// Planning without running: how it begins, and the way back at the end.
#include "bridge/step/plan_only.h"

#include <algorithm>
#include <unordered_map>

#include "bridge/recorder/recorder.h"
#include "bridge/recorder/recorder_state.h"
#include "bridge/step/constants.h"
#include "bridge/step/flush.h"
#include "bridge/tensor/abstract.h"
#include "bridge/tensor/annotation.h"
#include "bridge/tensor/meta.h"
#include "bridge/tensor/tensor.h"

namespace spmdx::bridge {
namespace {

// What the tensors from before the context had. Guarded by the recorder's lock.
struct Before {
  uint64_t newest_root = 0;
  std::unordered_map<uint64_t, Annotation> annotations;  // by serial of the root
};
Before& before() {
  static auto* instance = new Before;
  return *instance;
}

void restore_annotation(Root& root) {
  if (root.serial > before().newest_root) return;
  const auto found = before().annotations.find(root.serial);
  root.annotation = found == before().annotations.end() ? nullptr : std::make_unique<Annotation>(found->second);
}

}  // namespace

void begin_plan_only() {
  Recorder::Lock lock;
  flush(GraphEnd::asked);
  for (const auto& ref : live_roots()) {
    const Root& root = root_of(ref);
    before().newest_root = std::max(before().newest_root, root.serial);
    if (root.annotation) before().annotations.emplace(root.serial, *root.annotation);
  }
  begin_constants();
  set_planning_only(true);
}

void end_plan_only() {
  Recorder::Lock lock;
  RecorderState& state = Recorder::instance().state();
  for (const auto& ref : live_roots()) {
    Root& root = root_of(ref);
    DataRef data = root.current.data;
    if (state.pending(root.current)) data = root.previous ? root.previous : abstract_data(type_of(*root.base));
    if (data && data->is_abstract() && data->fallback()) data = data->fallback();
    if (data != root.current.data) {
      root.current = {0, kNone, std::move(data)};
      ++root.writes;
    }
    root.previous = nullptr;
    restore_annotation(root);
    note_change(root);
  }
  state.reset();
  before().annotations.clear();
  before().newest_root = 0;
  end_constants();
  set_planning_only(false);
  for (const auto& ref : live_roots())
    if (root_of(ref).current.data) state.follow_growth(root_of(ref));
}

}  // namespace spmdx::bridge
