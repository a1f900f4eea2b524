// SPDX-License-Identifier: Apache-2.0
// Schedules that cannot run are refused with the action that is wrong, as brute force says, and no others are.
#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <random>
#include <set>

#include "base/error.h"
#include "check.h"
#include "passes/pipeline/check.h"
#include "passes/pipeline/make_schedule.h"

using namespace spmdx;

namespace {

void refused(const std::string& table, const std::string& why) {
  CHECK_THROWS(ShardingError, check_schedule(parse_schedule(table)), why);
}

// Whether a table can run, found by trying each rank in turn, and which of its actions are wrong: those that are there
// twice, that never run, or that lack a part of their backward.
struct BruteForce {
  using Done = std::set<std::array<int64_t, 3>>;  // stage, microbatch, kind

  explicit BruteForce(const Schedule& schedule) : table(schedule), stages(schedule.num_stages()) {
    std::vector<size_t> next(table.ranks.size());
    for (bool goes_on = true; goes_on;) {
      goes_on = false;
      for (size_t rank = 0; rank < table.ranks.size(); ++rank)
        for (; next[rank] < table.ranks[rank].size() && can_run(rank, table.ranks[rank][next[rank]]); ++next[rank]) {
          done.insert(key(rank, table.ranks[rank][next[rank]]));
          goes_on = true;
        }
    }
    for (size_t rank = 0; rank < table.ranks.size(); ++rank)
      for (size_t i = 0; i < table.ranks[rank].size(); ++i)
        if (i >= next[rank] || is_twice(rank, i) || !has_backward(rank, i)) wrong.insert({rank, i});
    for (int64_t microbatch = 0; microbatch < table.num_microbatches(); ++microbatch)
      for (int64_t stage = 0; stage < stages; ++stage) whole = whole && done.contains({stage, microbatch, 'F'});
  }

  bool valid() const { return wrong.empty() && whole && stages > 0; }

  std::array<int64_t, 3> key(size_t rank, const Action& action) const {
    return {static_cast<int64_t>(action.chunk * table.ranks.size() + rank), action.microbatch,
            static_cast<int64_t>(action.kind)};
  }
  bool went_back(int64_t stage, int64_t microbatch) const {
    return done.contains({stage, microbatch, 'B'}) || done.contains({stage, microbatch, 'I'});
  }
  bool can_run(size_t rank, const Action& action) const {
    const auto [stage, microbatch, kind] = key(rank, action);
    if (kind == 'F') return stage == 0 || done.contains({stage - 1, microbatch, 'F'});
    if (kind == 'W') return done.contains({stage, microbatch, 'I'});
    return done.contains({stage, microbatch, 'F'}) && (stage + 1 == stages || went_back(stage + 1, microbatch));
  }
  int64_t count(size_t rank, Action action, ActionKind kind) const {
    action.kind = kind;
    return std::ranges::count(table.ranks[rank], action);
  }
  bool is_twice(size_t rank, size_t at) const {
    const Action& action = table.ranks[rank][at];
    const int64_t whole_ones = count(rank, action, ActionKind::B);
    return count(rank, action, action.kind) > 1 ||
           (action.kind != ActionKind::F && action.kind != ActionKind::B && whole_ones > 0) ||
           (action.kind == ActionKind::B &&
            count(rank, action, ActionKind::I) + count(rank, action, ActionKind::W) > 0);
  }
  bool has_backward(size_t rank, size_t at) const {
    const Action& action = table.ranks[rank][at];
    return count(rank, action, ActionKind::B) > 0 ||
           (count(rank, action, ActionKind::I) > 0 && count(rank, action, ActionKind::W) > 0);
  }

  const Schedule& table;
  int64_t stages;
  Done done;
  std::set<std::pair<size_t, size_t>> wrong;  // rank, position
  bool whole = true;
};

// The message of the refusal; empty if there is none.
std::string refusal(const Schedule& schedule) {
  try {
    check_schedule(schedule);
    return "";
  } catch (const ShardingError& error) {
    return error.what();
  }
}

// The rank and position that a message begins with.
std::pair<size_t, size_t> named(const std::string& message) {
  size_t rank = 99, position = 99;
  std::sscanf(message.c_str(), "rank %zu, position %zu: ", &rank, &position);
  return {rank, position};
}

Schedule drawn_schedule(std::mt19937& random) {
  const std::string kinds[] = {"gpipe", "1f1b", "zb-h1", "interleaved:" + std::to_string(random() % 2 + 2)};
  return make_schedule(kinds[random() % 4], random() % 4 + 1, random() % 6 + 1);
}

Action changed(Action action, std::mt19937& random) {
  const auto other = [&](int32_t number) { return number > 0 && random() % 2 ? number - 1 : number + 1; };
  switch (random() % 4) {
    case 0:
      action.kind = static_cast<ActionKind>("FBIW"[random() % 4]);
      break;
    case 1:
      action.chunk = other(action.chunk);
      break;
    case 2:
      action.microbatch = other(action.microbatch);
      break;
    default:
      action.microbatch = static_cast<int32_t>(random() % 20);
  }
  return action;
}

// Drops, repeats, swaps or changes actions of one rank. Returns the texts of those that it touched.
std::vector<std::string> mutate(Schedule& schedule, std::mt19937& random) {
  std::vector<Action>& actions = schedule.ranks[random() % schedule.ranks.size()];
  const size_t at = random() % actions.size(), other = random() % actions.size();
  std::vector<std::string> touched = {"'" + str(actions[at]) + "'"};
  switch (random() % 4) {
    case 0:
      actions.erase(actions.begin() + at);
      break;
    case 1:
      actions.insert(actions.begin() + other, Action(actions[at]));
      break;
    case 2:
      touched.push_back("'" + str(actions[other]) + "'");
      std::swap(actions[at], actions[other]);
      break;
    default:
      actions[at] = changed(actions[at], random);
      touched.push_back("'" + str(actions[at]) + "'");
  }
  return touched;
}

}  // namespace

TEST(what_is_there_twice_is_refused) {
  refused(
      "F0 F1 B0 F0 B1",
      "rank 0, position 3: 'F0' runs a second time, after position 0. Expected every action once. Remove one of the "
      "two.");
  refused(
      "F0 B0 F1 I1 W1 B1",
      "rank 0, position 5: 'B1' repeats a part of 'I1' at position 3. Expected a backward B, or its halves I and W. "
      "Remove the B, or the halves.");
  refused(
      "F0 B0 W0",
      "rank 0, position 2: 'W0' repeats a part of 'B0' at position 1. Expected a backward B, or its halves I and W. "
      "Remove the B, or the halves.");
}

TEST(what_is_missing_is_refused) {
  refused("F0 B0\nF0 F1 B0 B1",
          "rank 1, position 1: 'F1' waits for 'F1' of rank 0, which is not in the table. Expected each microbatch on "
          "every stage. Add 'F1' to rank 0, or remove 'F1'.");
  refused("F0 I0 W0\nF0 W0",
          "rank 1, position 1: 'W0' waits for 'I0' of rank 1, which is not in the table. Expected each microbatch on "
          "every stage. Add 'I0' to rank 1, or remove 'W0'.");
  refused("F0 B0\nF0",
          "rank 0, position 1: 'B0' waits for 'B0' of rank 1, which is not in the table. Expected each microbatch on "
          "every stage. Add 'B0' to rank 1, or remove 'B0'.");
  refused(
      "F0\nF0 B0",
      "rank 0, position 0: 'F0' has no 'B0' in the table. Expected a backward, whole or in halves. Add 'B0' to rank "
      "0.");
  refused(
      "F0 I0\nF0 B0",
      "rank 0, position 1: 'I0' has no 'W0' in the table. Expected both halves of the backward. Add 'W0' to rank 0.");
  refused("F0 B0 F2 B2\nF0 B0 F2 B2",
          "rank 0, position 2: 'F2' is of microbatch 2, and there are 2. Expected numbers from 0 without a gap. Number "
          "them 0 to 1.");
  refused("1.F0 1.B0",
          "rank 0, position 0: '1.F0' waits for 'F0' of rank 0, which is not in the table. Expected each microbatch on "
          "every stage. Add 'F0' to rank 0, or remove '1.F0'.");
  refused(
      "F0 1.F0 1.B0 B0\nF0 B0",
      "rank 0, position 2: '1.B0' waits for '1.B0' of rank 1, which is not in the table. Expected each microbatch on "
      "every stage. Add '1.B0' to rank 1, or remove '1.B0'.");
  refused("\n",
          "the schedule has no actions. Expected a line of them for each rank. Write 'F0 B0' for one rank and one "
          "microbatch.");
}

TEST(waits_without_an_end_are_refused) {
  refused(
      "F0 B0 B1 F1",
      "rank 0, position 2: 'B1' waits for 'F1' at position 3 of the same rank. Expected it before. Move 'F1' in front "
      "of 'B1'.");
  refused(
      "F0 B0 F1 B1\nF0 F1 B0 B1",
      "rank 0, position 1: 'B0' waits for 'B0' at position 2 of rank 1, behind 'F1' at position 1; 'F1' waits for "
      "'F1' at position 2 of rank 0, behind 'B0' at position 1: a circular wait. Expected an order in which some rank "
      "can always go on. Move one of these actions in front of what it is behind.");
  refused(
      "F0 1.F0 1.B0 B0\n1.F0 F0 1.B0 B0\nF0 1.F0 1.B0 B0",
      "rank 0, position 1: '1.F0' waits for 'F0' at position 0 of rank 2; 'F0' waits for 'F0' at position 1 of rank 1, "
      "behind '1.F0' at position 0; '1.F0' waits for '1.F0' at position 1 of rank 0: a circular wait.");
}

TEST(mutated_schedules_are_refused_where_brute_force_cannot_run_them) {
  std::mt19937 random(3);
  int accepted = 0;
  for (int i = 0; i < 1000; ++i) {
    Schedule schedule = drawn_schedule(random);
    const std::vector<std::string> touched = mutate(schedule, random);
    const std::string why = refusal(schedule);
    const BruteForce truth(schedule);
    accepted += truth.valid();
    if (truth.valid() != why.empty()) test::fail(__FILE__, __LINE__, str(schedule) + "\n" + why);
    if (truth.valid() || schedule.num_actions() == 0) continue;
    CHECK(truth.wrong.contains(named(why)));
    const auto is_named = [&](const std::string& text) { return why.find(text) != why.npos; };
    if (std::ranges::none_of(touched, is_named)) test::fail(__FILE__, __LINE__, str(schedule) + "\n" + why);
  }
  CHECK(accepted > 50 && accepted < 500);
}

TEST(schedules_with_several_mutations_are_refused_where_brute_force_cannot_run_them) {
  std::mt19937 random(5);
  for (int i = 0; i < 500; ++i) {
    Schedule schedule = drawn_schedule(random);
    for (size_t k = random() % 4 + 2; k > 0; --k) {
      const auto is_empty = [](const std::vector<Action>& actions) { return actions.empty(); };
      if (std::ranges::none_of(schedule.ranks, is_empty)) mutate(schedule, random);
    }
    const std::string why = refusal(schedule);
    const BruteForce truth(schedule);
    CHECK_EQ(truth.valid(), why.empty());
    if (!truth.valid() && schedule.num_actions() > 0) CHECK(truth.wrong.contains(named(why)) || !truth.whole);
  }
}
