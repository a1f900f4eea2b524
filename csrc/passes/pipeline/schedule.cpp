// SPDX-License-Identifier: Apache-2.0
// The text form of schedules, and what follows from their tables.
#include "passes/pipeline/schedule.h"

#include <algorithm>

#include "base/cursor.h"
#include "base/error.h"

namespace spmdx {
namespace {

int64_t one_more_than_most(const Schedule& schedule, int32_t Action::* field) {
  int64_t most = -1;
  for (const std::vector<Action>& actions : schedule.ranks)
    for (const Action& action : actions) most = std::max<int64_t>(most, action.*field);
  return most + 1;
}

// Reads "F0" or "1.F0" if the whole word is one.
bool read_action(std::string_view word, Action& action) {
  Cursor text(word);
  const auto number = [&](int32_t& value) {
    const bool is_digit = text.position() < word.size() && word[text.position()] >= '0' && word[text.position()] <= '9';
    const auto found = is_digit ? text.number_or_none<int32_t>() : std::nullopt;
    value = found.value_or(-1);
    return found && value < kMostCounted;
  };
  if (const size_t dot = word.find('.'); dot != word.npos) {
    if (!number(action.chunk) || text.position() != dot) return false;
    text.back_to(dot + 1);
  }
  if (text.position() == word.size() || !is_kind(word[text.position()])) return false;
  action.kind = static_cast<ActionKind>(word[text.position()]);
  text.back_to(text.position() + 1);
  return number(action.microbatch) && text.position() == word.size();
}

std::vector<Action> parse_rank(std::string_view line, int64_t line_number) {
  std::vector<Action> actions;
  Cursor text(line);
  for (text.skip_blanks(); text.position() < line.size(); text.skip_blanks()) {
    const size_t column = text.position() + 1;
    const std::string_view word = text.until(" \t\r");
    if (!read_action(word, actions.emplace_back()))
      throw ShardingError("line " + std::to_string(line_number) + ", column " + std::to_string(column) + ": found '" +
                          std::string(word) + "'. Expected F, B, I or W and the number of a microbatch below " +
                          std::to_string(kMostCounted) + ". Write F0, or 1.F0 for the rank's chunk 1.");
  }
  return actions;
}

}  // namespace

int64_t Schedule::num_chunks() const { return one_more_than_most(*this, &Action::chunk); }
int64_t Schedule::num_microbatches() const { return one_more_than_most(*this, &Action::microbatch); }

int64_t Schedule::num_actions() const {
  int64_t count = 0;
  for (const std::vector<Action>& actions : ranks) count += static_cast<int64_t>(actions.size());
  return count;
}

bool is_kind(char letter) { return std::string_view("FBIW").find(letter) != std::string_view::npos; }

Schedule in_halves(const Schedule& schedule) {
  Schedule halves;
  for (const std::vector<Action>& actions : schedule.ranks) {
    std::vector<Action>& rank = halves.ranks.emplace_back();
    for (const Action& action : actions) {
      if (action.kind != ActionKind::B) {
        rank.push_back(action);
        continue;
      }
      rank.push_back({ActionKind::I, action.chunk, action.microbatch});
      rank.push_back({ActionKind::W, action.chunk, action.microbatch});
    }
  }
  return halves;
}

std::string str(const Action& action) {
  const std::string chunk = action.chunk > 0 ? std::to_string(action.chunk) + "." : "";
  return chunk + static_cast<char>(action.kind) + std::to_string(action.microbatch);
}

std::string str(const Schedule& schedule) {
  std::string text;
  for (const std::vector<Action>& actions : schedule.ranks) {
    if (!text.empty()) text += '\n';
    for (size_t i = 0; i < actions.size(); ++i) text += (i > 0 ? " " : "") + str(actions[i]);
  }
  return text;
}

Schedule parse_schedule(std::string_view text) {
  Schedule schedule;
  for (int64_t line = 1; !text.empty(); ++line) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::vector<Action> actions = parse_rank(text.substr(0, end), line);
    if (!actions.empty()) schedule.ranks.push_back(std::move(actions));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return schedule;
}

}  // namespace spmdx
