// SPDX-License-Identifier: Apache-2.0
// Where in the program an op is recorded, as autograd counts forward ops and backward passes.
#include <ATen/SequenceNumber.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/function.h>

#include "bridge/recorder/recorder_state.h"

namespace torch::autograd {
bool get_current_graph_task_keep_graph();
int get_current_graph_task_id();  // both of <torch/csrc/autograd/graph_task.h>, which includes a lot
}  // namespace torch::autograd

namespace spmdx::bridge {
namespace {

// Of each thread by itself: one that goes backward computes anew what a checkpoint did not keep.
uint64_t op_of(uint64_t thread, uint64_t number) { return (thread << 48) ^ number; }

// Autograd's node for this op has taken the number before.
uint64_t op_now() { return op_of(at::RecordFunction::currentThreadId(), at::sequence_number::peek()); }

}  // namespace

Recorded RecorderState::recorded_now() {
  const bool backward = torch::autograd::get_current_graph_task_id() >= 0;
  if (backward == (phase % 2 == 1)) ++phase;
  if (backward) {
    const auto node = torch::autograd::get_current_node();
    // A backward pass that makes a graph keeps the one that it follows.
    const bool again = at::GradMode::is_enabled() && !torch::autograd::get_current_graph_task_keep_graph();
    if (again) return {{phase}, op_now(), true};
    return {{phase}, node ? op_of(node->thread_id(), node->sequence_nr() + 1) : 0, false};
  }
  return {{phase}, at::GradMode::is_enabled() ? op_now() : 0, false};
}

}  // namespace spmdx::bridge
