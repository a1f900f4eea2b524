// SPDX-License-Identifier: Apache-2.0
// Reads and writes schedules as torch.distributed.pipelining does, whose rows end as those of Python's csv do.
#include "passes/pipeline/schedule_csv.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <optional>

#include "base/error.h"

namespace spmdx {
namespace {

constexpr std::string_view kCommunication[] = {"SEND_F",  "RECV_F",  "SEND_B",     "RECV_B",
                                               "UNSHARD", "RESHARD", "REDUCE_GRAD"};

// A cell's parts: "12SEND_F3" is 12, "SEND_F" and 3.
struct Cell {
  int64_t stage = -1;
  std::string_view kind;
  int64_t microbatch = -1;
};

int64_t number(std::string_view digits) {
  int64_t value = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return error == std::errc() && end == digits.data() + digits.size() ? value : -1;
}

Cell parts_of(std::string_view cell) {
  constexpr std::string_view kDigits = "0123456789";
  const size_t begin = std::min(cell.find_first_not_of(kDigits), cell.size());
  const size_t end = cell.find_last_not_of(kDigits) + 1;
  if (begin >= end) return {};
  return {number(cell.substr(0, begin)), cell.substr(begin, end - begin), number(cell.substr(end))};
}

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r");
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") + 1 - begin);
}

[[noreturn]] void fail(int64_t rank, int64_t cell, const std::string& what) {
  throw ShardingError("line " + std::to_string(rank + 1) + ", cell " + std::to_string(cell + 1) + ": " + what);
}

// Nothing for an empty cell and for communication.
std::optional<Action> parse_cell(std::string_view text, int64_t rank, int64_t cell, int64_t num_ranks) {
  if (text.empty()) return std::nullopt;
  const auto [stage, kind, microbatch] = parts_of(text);
  if (stage >= 0 && std::ranges::find(kCommunication, kind) != std::end(kCommunication)) return std::nullopt;
  const bool is_action = stage >= 0 && kind.size() == 1 && is_kind(kind[0]) && microbatch >= 0;
  if (!is_action || microbatch >= kMostCounted || stage / num_ranks >= kMostCounted)
    fail(rank, cell,
         "found '" + std::string(text) + "'. Expected a stage, F, B, I or W, and a microbatch. Write '0F0', or leave " +
             "the cell empty.");
  if (stage % num_ranks != rank)
    fail(rank, cell,
         "'" + std::string(text) + "' is of stage " + std::to_string(stage) + ". Expected rank " +
             std::to_string(rank) + " of " + std::to_string(num_ranks) + " to hold the stages " + std::to_string(rank) +
             ", " + std::to_string(num_ranks + rank) + ", …. Use a schedule whose stages go round the ranks.");
  return Action{static_cast<ActionKind>(kind[0]), static_cast<int32_t>(stage / num_ranks),
                static_cast<int32_t>(microbatch)};
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t end = text.find(separator); end != text.npos; end = text.find(separator)) {
    parts.push_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  parts.push_back(text);
  return parts;
}

}  // namespace

std::string csv(const Schedule& schedule) {
  std::string text;
  for (size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    std::string row;
    for (const Action& action : schedule.ranks[rank])
      row += (row.empty() ? "" : ",") + std::to_string(action.chunk * schedule.ranks.size() + rank) +
             static_cast<char>(action.kind) + std::to_string(action.microbatch);
    text += row + "\r\n";
  }
  return text;
}

Schedule parse_csv(std::string_view text) {
  std::vector<std::string_view> rows = split(text, '\n');
  while (!rows.empty() && trimmed(rows.back()).empty()) rows.pop_back();
  Schedule schedule;
  for (const std::string_view row : rows) {
    const auto rank = static_cast<int64_t>(schedule.ranks.size());
    std::vector<Action>& actions = schedule.ranks.emplace_back();
    const std::vector<std::string_view> cells = split(row, ',');
    for (size_t cell = 0; cell < cells.size(); ++cell)
      if (const auto action = parse_cell(trimmed(cells[cell]), rank, cell, rows.size())) actions.push_back(*action);
  }
  return schedule;
}

}  // namespace spmdx
