// SPDX-License-Identifier: Apache-2.0
#include "passes/kinds/assign.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "passes/kinds/clusters.h"
#include "passes/kinds/exact.h"
#include "passes/kinds/fewer_sends.h"
#include "passes/kinds/improve.h"
#include "passes/kinds/list_schedule.h"
#include "passes/kinds/memory_fit.h"

namespace spmdx {
namespace {

// As the tasks come; nothing where memory runs out.
std::optional<TaskSequences> in_order(const TaskGraph& graph, const std::vector<uint32_t>& device) {
  std::vector<uint32_t> order(graph.tasks());
  std::iota(order.begin(), order.end(), 0);
  TaskSequences sequences(graph, device, order);
  if (std::ranges::any_of(sequences.room, [](int64_t bytes) { return bytes < 0; })) return std::nullopt;
  return sequences;
}

}  // namespace

TaskAssignment assign_tasks(const std::vector<Task>& tasks, const Devices& devices) {
  const TaskGraph graph(tasks, devices);
  const TaskSequences found = improve(graph, list_schedules(graph, fit_memory(graph)), 0);
  return to_assignment(graph, graph.tasks() <= kMostExact ? shortest(graph, found) : found);
}

TaskAssignment assign_with_few_sends(const std::vector<Task>& tasks, const Devices& devices,
                                     const std::vector<uint32_t>& near) {
  const TaskGraph graph(tasks, devices);
  FewerSends best = send_less(graph, improve(graph, list_schedules(graph, fit_memory(graph)), 0));
  const auto start = near.empty() ? clustered_devices(graph) : std::optional(near);
  if (const auto sequences = start ? in_order(graph, *start) : std::nullopt) {
    FewerSends other = send_less(graph, *sequences);
    if (other.ns < best.ns) best = std::move(other);
  }
  return to_assignment(graph, best.sequences);
}

}  // namespace spmdx
