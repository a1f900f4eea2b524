// SPDX-License-Identifier: Apache-2.0
// Where in the program an op is recorded, as autograd counts forward ops and backward passes.
#include <ATen/SequenceNumber.h>
#include <torch/csrc/autograd/function.h>

#include "bridge/recorder/recorder_state.h"

namespace torch::autograd {
bool get_current_graph_task_keep_graph();
int get_current_graph_task_id();  // both of <torch/csrc/autograd/graph_task.h>, which includes a lot
}  // namespace torch::autograd

namespace spmdx::bridge {

Recorded RecorderState::recorded_now() {
  const bool backward = torch::autograd::get_current_graph_task_id() >= 0;
  if (backward == (phase % 2 == 1)) ++phase;
  if (backward) {
    const auto node = torch::autograd::get_current_node();
    // A backward pass that makes a graph keeps the one that it follows.
    const bool again = at::GradMode::is_enabled() && !torch::autograd::get_current_graph_task_keep_graph();
    return {{phase}, node ? node->sequence_nr() + 1 : 0, again};
  }
  // Autograd's node for this op has taken the number before.
  return {{phase}, at::GradMode::is_enabled() ? at::sequence_number::peek() : 0, false};
}

}  // namespace spmdx::bridge
