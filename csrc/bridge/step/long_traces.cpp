// SPDX-License-Identifier: Apache-2.0
// Long traces: limits by nodes and by bytes, and the place of a cut. All of it depends on the program alone, so that
// processes cut alike.
#include "bridge/step/long_traces.h"

#include "bridge/python/source.h"
#include "bridge/recorder/recorder.h"
#include "bridge/recorder/recorder_state.h"
#include "bridge/step/flush.h"

namespace spmdx::bridge {
namespace {

// From the first limit on a graph ends where its program begins again: pieces of a loop are then equal, and have one
// plan. At the second it ends anywhere: memory and compile time stay bounded.
constexpr size_t kManyNodes = 25'000;
constexpr size_t kMostNodes = 50'000;
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
  if (nodes <= kMostNodes && bytes <= kMostUploads && !begins_again(state, op)) return;
  flush(true);
  state.first_op = op;
}

}  // namespace spmdx::bridge
