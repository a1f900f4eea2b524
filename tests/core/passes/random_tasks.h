// SPDX-License-Identifier: Apache-2.0
// Tasks and devices drawn at random, and what the tests of their assignment know of them without it.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "passes/kinds/tasks.h"

namespace spmdx::test {

struct DrawnTasks {
  std::string shape;  // how they read each other, for messages
  std::vector<Task> tasks;
  Devices devices;
};
// Chains, layers, forks and joins, any graph, or no reads; 2 to `most_devices` devices of kinds that differ by task,
// some of which never run some tasks; links from next to free to slower than the work; memory for all, or for little
// more than all.
DrawnTasks draw_tasks(unsigned seed, uint32_t tasks, uint32_t most_devices);
// The same graphs with values that some tasks share, and memory for the largest task to nearly all of them.
DrawnTasks draw_sharing_tasks(unsigned seed, uint32_t tasks, uint32_t most_devices);

// What is wrong with an assignment, run again; empty: nothing.
std::string wrong_with(const TaskAssignment& found, const std::vector<Task>& tasks, const Devices& devices);

// The shortest makespan: all devices for all tasks, in all orders; nothing where memory holds none.
std::optional<int64_t> shortest_by_force(const std::vector<Task>& tasks, const Devices& devices);

}  // namespace spmdx::test
