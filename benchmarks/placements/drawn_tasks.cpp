// SPDX-License-Identifier: Apache-2.0
// Draws tasks as the core tests do, assigns them, and prints a line of JSON for each graph: placements.py reads it.
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "passes/kinds/search/assign.h"
#include "passes/kinds/bound/least.h"
#include "passes/random_tasks.h"

namespace spmdx {
namespace {

constexpr const char* kUsage =
    "usage: spmdx-drawn-tasks FIRST END MOST_DEVICES [TASKS]   graphs of the seeds from FIRST to before END, of so "
    "many "
    "tasks, or of 11 to 60\n";

std::string json(int64_t value) { return value == kNever ? "null" : std::to_string(value); }
std::string json(uint32_t value) { return std::to_string(value); }
std::string json(const TaskRead& read) { return "[" + json(read.task) + "," + json(read.bytes) + "]"; }
std::string json(const Link& link) { return "[" + json(link.latency_ns) + "," + json(link.picoseconds_per_byte) + "]"; }
std::string json(const Task& task);
template <class T>
std::string json(const std::vector<T>& values) {
  std::string text;
  for (const T& value : values) text += (text.empty() ? "[" : ",") + json(value);
  return text.empty() ? "[]" : text + "]";
}
std::string json(const Task& task) {
  return "{\"ns\":" + json(task.ns) + ",\"reads\":" + json(task.reads) + ",\"bytes\":" + json(task.bytes) + "}";
}

void print(unsigned seed, uint32_t tasks, uint32_t most_devices) {
  const test::DrawnTasks drawn = test::draw_tasks(seed, tasks, most_devices);
  std::cout << "{\"seed\":" << seed << ",\"shape\":\"" << drawn.shape << "\",\"tasks\":" << json(drawn.tasks)
            << ",\"memory\":" << json(drawn.devices.memory) << ",\"links\":" << json(drawn.devices.links);
  try {
    const TaskAssignment found = assign_tasks(drawn.tasks, drawn.devices);
    std::cout << ",\"ns\":" << found.ns << ",\"least\":" << least_makespan_ns(drawn.tasks, drawn.devices)
              << ",\"device\":" << json(found.device) << ",\"start\":" << json(found.start);
  } catch (const TaskMemoryError&) {
    std::cout << ",\"ns\":null";
  }
  std::cout << "}" << std::endl;
}

}  // namespace
}  // namespace spmdx

int main(int count, char** words) {
  if (count < 4 || count > 5) {
    std::cerr << spmdx::kUsage;
    return 2;
  }
  const auto number = [&](int at) { return static_cast<unsigned>(std::strtoul(words[at], nullptr, 10)); };
  for (unsigned seed = number(1); seed < number(2); ++seed)
    spmdx::print(seed, count == 5 ? number(4) : 11 + seed * 7919 % 50, number(3));
}
