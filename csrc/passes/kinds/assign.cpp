// SPDX-License-Identifier: Apache-2.0
#include "passes/kinds/assign.h"

#include "passes/kinds/exact.h"
#include "passes/kinds/improve.h"
#include "passes/kinds/list_schedule.h"
#include "passes/kinds/memory_fit.h"

namespace spmdx {

TaskAssignment assign_tasks(const std::vector<Task>& tasks, const Devices& devices) {
  const TaskGraph graph(tasks, devices);
  const std::vector<TaskSequences> starts = list_schedules(graph, fit_memory(graph));
  const TaskSequences found = improve(graph, starts, 0);
  return to_assignment(graph, graph.tasks() <= kMostExact ? shortest(graph, found) : found);
}

}  // namespace spmdx
