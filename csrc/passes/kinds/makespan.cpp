// SPDX-License-Identifier: Apache-2.0
#include "passes/kinds/makespan.h"

#include <algorithm>
#include <numeric>

#include "passes/kinds/sequences.h"

namespace spmdx {
namespace {

// As if devices ran all that has come at once.
std::vector<uint32_t> in_order_of_arrival(const TaskGraph& graph, const std::vector<uint32_t>& device) {
  std::vector<int64_t> there(graph.tasks(), 0);
  for (uint32_t task = 0; task < graph.tasks(); ++task)
    for (const TaskArc arc : graph.reads(task))
      there[task] = std::max(there[task], there[arc.task] + graph.transfer(arc, device[arc.task], device[task]));
  std::vector<uint32_t> order(graph.tasks());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](uint32_t task) { return there[task]; });
  return order;
}

}  // namespace

std::optional<int64_t> makespan_ns(const std::vector<Task>& tasks, const Devices& devices,
                                   const std::vector<uint32_t>& device) {
  const TaskGraph graph(tasks, devices);
  TimesInOrder times(graph);
  times.run(graph, device, in_order_of_arrival(graph, device));
  if (!times.all_fit()) return std::nullopt;
  return times.ns;
}

}  // namespace spmdx
