// SPDX-License-Identifier: Apache-2.0
// Assign: which device of several kinds runs which task, and when, so that all are done soon.
//
// Scheduling on unrelated machines with precedences and delays between machines, R|prec, c_jk|C_max. A device runs one
// task at a time; transfers do not wait for each other.
#pragma once
#include "passes/kinds/tasks.h"

namespace spmdx {

// The shortest makespan of up to 10 tasks, and a short one of more. Decides by integers and counts alone, so that all
// processes decide alike. Throws ShardingError for a task that no device can run, TaskMemoryError where none fits.
TaskAssignment assign_tasks(const std::vector<Task>& tasks, const Devices& devices);

// A makespan that is short, where what is sent keeps each device busy as well. `near`: devices by task from which on
// one is sought, too; empty: tasks that slow transfers join stay together at first. Throws as assign_tasks.
TaskAssignment assign_with_few_sends(const std::vector<Task>& tasks, const Devices& devices,
                                     const std::vector<uint32_t>& near);

}  // namespace spmdx
