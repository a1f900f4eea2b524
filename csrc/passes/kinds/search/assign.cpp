// SPDX-License-Identifier: Apache-2.0
#include "passes/kinds/search/assign.h"

#include <numeric>
#include <optional>

#include "passes/kinds/clusters.h"
#include "passes/kinds/exact.h"
#include "passes/kinds/list_schedule.h"
#include "passes/kinds/memory_fit.h"
#include "passes/kinds/search/fewer_sends.h"
#include "passes/kinds/search/improve.h"

namespace spmdx {
namespace {

// As the tasks come.
TaskSequences in_order(const TaskGraph& graph, const std::vector<uint32_t>& device) {
  std::vector<uint32_t> order(graph.tasks());
  std::iota(order.begin(), order.end(), 0);
  return {graph, device, order};
}

}  // namespace

TaskAssignment assign_tasks(const std::vector<Task>& tasks, const Devices& devices) {
  const TaskGraph graph(tasks, devices);
  const TaskSequences found = improve(graph, list_schedules(graph, fit_memory(graph)));
  return to_assignment(graph, graph.tasks() <= kMostExact ? shortest(graph, found) : found);
}

TaskAssignment assign_with_few_sends(const std::vector<Task>& tasks, const Devices& devices,
                                     const std::vector<uint32_t>& near) {
  const TaskGraph graph(tasks, devices);
  const FewerSends best = send_less(graph, improve(graph, list_schedules(graph, fit_memory(graph))));
  const auto start = near.empty() ? clustered_devices(graph) : std::optional(near);
  if (!start) return to_assignment(graph, best.sequences);
  const TaskSequences sequences = in_order(graph, *start);
  if (!sequences.all_fit()) return to_assignment(graph, best.sequences);
  const FewerSends other = send_less(graph, sequences);
  return to_assignment(graph, (other.ns < best.ns ? other : best).sequences);
}

}  // namespace spmdx
