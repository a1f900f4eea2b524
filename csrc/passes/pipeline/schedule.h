// SPDX-License-Identifier: Apache-2.0
// Schedule: what every rank of a pipeline does, in its order, as a table of actions with a text form.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace spmdx {

// The letters of the text form: forward, full backward, and its halves, the gradients of the input and of the weights.
enum class ActionKind : char { F = 'F', B = 'B', I = 'I', W = 'W' };

// A stage's work on one microbatch. Rank r of p holds the stages r, p + r, 2p + r …, which are its chunks 0, 1, 2 ….
struct Action {
  ActionKind kind = ActionKind::F;
  int32_t chunk = 0;
  int32_t microbatch = 0;
  bool operator==(const Action&) const = default;
};

struct Schedule {
  std::vector<std::vector<Action>> ranks;

  int64_t num_chunks() const;  // of every rank
  int64_t num_stages() const { return num_chunks() * static_cast<int64_t>(ranks.size()); }
  int64_t num_microbatches() const;  // one more than the last one
  int64_t num_actions() const;
  bool operator==(const Schedule&) const = default;
};

// The same with each full backward as its halves, that of the input first: other ranks wait for nothing else.
Schedule in_halves(const Schedule& schedule);

constexpr int32_t kMostCounted = 1'000'000;  // chunks, microbatches

std::string str(const Action& action);      // "F0"; "1.F0" of chunk 1
std::string str(const Schedule& schedule);  // "F0 F1 B0 B1", a line a rank
bool is_kind(char letter);                  // whether an ActionKind has this letter
// Reads the text form; lines without actions are passed over. Throws ShardingError, with line and column, where it is
// none. Whether the schedule can run is asked of check_schedule.
Schedule parse_schedule(std::string_view text);

}  // namespace spmdx
