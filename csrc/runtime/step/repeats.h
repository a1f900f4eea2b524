// SPDX-License-Identifier: Apache-2.0
// Repeats: programs that are planned again and again because one shape or number in them changes.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "graph/graph.h"

namespace spmdx {

// What changes from plan to plan, where many were made for one program.
struct Repeat {
  SourceId source = 0;              // of an op that it changes
  std::string op;                   // that op
  bool is_input = false;            // an input of the program changes its shape; else a number in the op
  std::vector<std::string> values;  // types of that input, or calls of that op, the latest ones
  int64_t plans = 0;
  int64_t planning_ns = 0;
  mutable bool told = false;  // the plan is found again at each step; guarded by the recorder's lock
};

// Not thread-safe: the engine holds a lock around it.
class Repeats {
 public:
  static constexpr size_t kMany = 8;  // values of what changes, from which on the user is told
  // Notes a plan and the time that it took. Gives a Repeat, once a program, when there were too many values.
  std::optional<Repeat> note(const Graph& traced, int64_t planning_ns);

 private:
  struct Family {
    std::vector<Shape> inputs;        // of the last plan
    std::vector<CallRef> calls;       // of the last plan
    std::vector<bool> varies;         // inputs
    std::optional<size_t> node;       // whose call changed while no input did
    std::vector<std::string> values;  // of what changes, each once
    int64_t plans = 0, planning_ns = 0;
  };
  static constexpr size_t kFamilies = 256;
  static void compare(Family& family, const Graph& traced);
  std::unordered_map<uint64_t, Family> families_;
};

}  // namespace spmdx
