// SPDX-License-Identifier: Apache-2.0
// Differences: two texts, line by line.
#include "runtime/step/differences.h"

#include <algorithm>
#include <optional>

namespace spmdx {
namespace {

struct Line {
  std::string text, source;
};

std::vector<Line> lines_of(const std::string& text) {
  std::vector<Line> lines;
  for (size_t start = 0; start < text.size();) {
    const size_t end = std::min(text.find('\n', start), text.size());
    const std::string line = text.substr(start, end - start);
    const size_t note = line.find("  // ");
    lines.push_back({line.substr(0, note), note == line.npos ? "" : line.substr(note + 5)});
    start = end + 1;
  }
  return lines;
}

std::string quoted(int64_t process, const std::vector<Line>& lines, size_t at) {
  const std::string who = "process " + std::to_string(process) + " has ";
  const bool ends = at >= lines.size() || lines[at].text.empty() || lines[at].text == kValuesHead;
  if (ends) return who + "nothing more";
  size_t next = at;  // a line without a source belongs to the next line that has one
  while (next + 1 < lines.size() && lines[next].source.empty()) ++next;
  const std::string& source = lines[next].source;
  const std::string where = source.empty() ? "" : (next == at ? " (" : " (before ") + source + ")";
  return who + "`" + lines[at].text + "`" + where;
}

constexpr const char* kMendProgram =
    "Expected the same program in every process. Look for code that asks for the rank, or that depends on what only "
    "one process knows.";
constexpr const char* kMendAlive =
    "Expected the same tensors to be alive in every process when a step ends. Look for a tensor that one process alone "
    "keeps; one in a cycle of Python objects lives until Python's collector comes by, at another time in every "
    "process: import gc, then gc.disable() at the start and gc.collect() after a fixed number of steps.";
constexpr const char* kMendValues =
    "Expected the same values in every process. Seed every process alike (torch.manual_seed), or give each its own "
    "part of the batch with spmdx.data.device_loader(minibatch=True).";
constexpr const char* kMendPlan =
    "Expected the same plan. Compare SPMDX_TOPOLOGY, set_topology, set_hardware, set_memory_limit, set_gather_budget, "
    "and the versions of spmdx and torch.";

// Whether a process returns a tensor at this line that the other has not, or has no more.
bool is_of_what_lives(const std::vector<Line>& here, const std::vector<Line>& there, size_t at) {
  const auto returns = [at](const std::vector<Line>& lines) {
    return at < lines.size() && lines[at].text.starts_with("return ");
  };
  return returns(here) || returns(there);
}

}  // namespace

std::string first_difference(const Account& mine, const std::vector<Account>& others) {
  const std::vector<Line> here = lines_of(mine.text);
  for (const Account& other : others) {
    const std::vector<Line> there = lines_of(other.text);
    const size_t shorter = std::min(here.size(), there.size());
    size_t at = 0;
    while (at < shorter && here[at].text == there[at].text) ++at;
    if (at == here.size() && at == there.size()) continue;
    const auto head = std::find_if(here.begin(), here.end(), [](const Line& line) { return line.text == kValuesHead; });
    const bool values = static_cast<size_t>(head - here.begin()) < at;
    return std::string(values ? "processes feed different values to" : "processes run different programs in") +
           " this step: " + quoted(mine.process, here, at) + ", " + quoted(other.process, there, at) + ". " +
           (values                              ? kMendValues
            : is_of_what_lives(here, there, at) ? kMendAlive
                                                : kMendProgram);
  }
  return std::string("processes planned the same program differently. ") + kMendPlan;
}

}  // namespace spmdx
