// SPDX-License-Identifier: Apache-2.0
// Long traces: limits by nodes and by bytes, and the place of a cut. All of it depends on the program alone, so that
// processes cut alike.
#include "bridge/step/long_traces.h"

#include "bridge/python/source.h"
#include "bridge/recorder/recorder.h"
#include "bridge/recorder/recorder_state.h"
#include "bridge/step/flush.h"
#include "bridge/tensor/abstract.h"

namespace spmdx::bridge {
namespace {

// At the second limit a graph ends anywhere: memory and compile time stay bounded. After such a cut it ends from the
// first limit on where its program begins again: pieces of a loop are then equal, and have one plan.
constexpr size_t kManyNodes = 25'000;
constexpr size_t kMostNodes = 50'000;
// How many times as many nodes a graph may have that has stages, since a pipeline works on the microbatches of one
// graph; or that is only planned, since reports tell of one graph.
constexpr size_t kTimesOfWholeSteps = 20;
// The same by bytes of uploads, which a process holds until the graph runs: half a gibibyte, and one.
constexpr int64_t kManyUploads = 536'870'912;
constexpr int64_t kMostUploads = 1'073'741'824;
// Bytes of uploads after which those are looked for that no live value needs: a copy of so many takes longer than that.
constexpr int64_t kSweptUploads = 16'777'216;

// Whether the op is the one with which the graph began, called by the same line.
bool begins_again(const RecorderState& state, const void* op) {
  return op == state.first_op && current_source() == state.graph.nodes[0].source;
}

}  // namespace

void end_if_long(const void* op) {
  RecorderState& state = Recorder::instance().state();
  if (state.graph.nodes.empty()) {
    state.first_op = op;
    return;
  }
  if (state.uploads.since_sweep > kSweptUploads) state.drop_dead_inputs();
  const size_t nodes = state.graph.nodes.size();
  const int64_t bytes = state.uploads.bytes;
  if (nodes <= kManyNodes && bytes <= kManyUploads) return;
  const size_t times = state.has_stages || planning_only() ? kTimesOfWholeSteps : 1;
  const bool is_too_long = nodes > times * kMostNodes || bytes > kMostUploads;
  const bool is_long = nodes > times * kManyNodes || bytes > kManyUploads;
  if (!is_too_long && !(state.was_cut && is_long && begins_again(state, op))) return;
  flush(GraphEnd::too_long);
  state.first_op = op;
}

}  // namespace spmdx::bridge
