// SPDX-License-Identifier: Apache-2.0
// The simulation of named schedules equals the formulas of their papers; what an action waits for precedes it.
#include <algorithm>
#include <cmath>
#include <random>

#include "base/error.h"
#include "check.h"
#include "passes/pipeline/dependencies.h"
#include "passes/pipeline/make_schedule.h"
#include "passes/pipeline/simulate.h"

using namespace spmdx;

namespace {

constexpr int64_t kRanks = 8, kMicrobatches = 64;
// Whole numbers, so that sums are exact. For interleaved schedules they are those of a chunk.
constexpr StageTimes kTimes[] = {{1, 1, 1}, {2, 3, 1}, {3, 1, 2}};

// Calls `holds` with the ranks, microbatches, times and simulation of a kind.
template <class Holds>
void each(const std::string& kind, int64_t chunks, const Holds& holds) {
  for (int64_t p = 1; p <= kRanks; ++p)
    for (int64_t m = 1; m <= kMicrobatches; ++m)
      for (const StageTimes& t : kTimes)
        holds(p, m, t, simulate(make_schedule(kind, p, m), std::vector<StageTimes>(p * chunks, t)));
}

// What every rank is idle; all are so alike, since they have the same work.
void check_idle(const Simulation& simulation, double idle, double work) {
  CHECK_EQ(simulation.idle, std::vector<double>(simulation.idle.size(), idle));
  CHECK_EQ(simulation.total, work + idle);
  CHECK_EQ(simulation.bubble, idle / work);
}

}  // namespace

// (p − 1)(t_F + t_B), for any m and any times.
TEST(bubble_and_memory_of_gpipe) {
  each("gpipe", 1, [](int64_t p, int64_t m, const StageTimes& t, const Simulation& simulation) {
    const double work = t.forward + t.input_gradient + t.weight_gradient;
    check_idle(simulation, (p - 1) * work, m * work);
    CHECK_EQ(simulation.in_flight, std::vector<int64_t>(p, m));
    CHECK_EQ(simulation.in_flight_to_input, std::vector<int64_t>(p, m));
  });
}

// The same bubble, also for m < p; min(m, p − i) microbatches in flight on rank i.
TEST(bubble_and_memory_of_1f1b) {
  each("1f1b", 1, [](int64_t p, int64_t m, const StageTimes& t, const Simulation& simulation) {
    const double work = t.forward + t.input_gradient + t.weight_gradient;
    check_idle(simulation, (p - 1) * work, m * work);
    for (int64_t i = 0; i < p; ++i) CHECK_EQ(simulation.in_flight[i], std::min(m, p - i));
    CHECK_EQ(simulation.in_flight, simulation.in_flight_to_input);
  });
}

// (p − 1)(t_F + t_B) of a chunk, which is 1 / v of a rank's work, for any times where p divides m. On rank i there are
// (v − 1)p + 2(p − i) − 1 chunks in flight, of v·m at most: on rank 0 p(1 + (p − 1) / pv) microbatches of v chunks.
TEST(bubble_and_memory_of_interleaved_schedules) {
  for (const int64_t v : {2, 3, 4})
    each("interleaved:" + std::to_string(v), v, [&](int64_t p, int64_t m, const StageTimes& t, const Simulation& s) {
      if (m % p != 0) return;
      const double work = t.forward + t.input_gradient + t.weight_gradient;
      check_idle(s, (p - 1) * work, m * v * work);
      for (int64_t i = 0; i < p; ++i) CHECK_EQ(s.in_flight[i], std::min(v * m, (v - 1) * p + 2 * (p - i) - 1));
    });
}

// (p − 1)(t_F + t_I − t_W) where p ≤ m and t_W is at most t_F and t_I. Elsewhere a weight gradient fills of each hop
// there and back what fits, and there are min(m, p) − 1 of them to fill it with. Memory is that of 1F1B's first rank,
// on all ranks: they put off i weight gradients. To the input's gradient it is that of 1F1B.
TEST(bubble_and_memory_of_zb_h1) {
  each("zb-h1", 1, [](int64_t p, int64_t m, const StageTimes& t, const Simulation& simulation) {
    const double work = t.forward + t.input_gradient + t.weight_gradient;
    const double filled = std::min({t.forward, t.input_gradient, t.weight_gradient});
    const double idle = (p - 1) * (t.forward + t.input_gradient) - (std::min(m, p) - 1) * filled;
    check_idle(simulation, idle, m * work);
    if (p <= m && filled == t.weight_gradient)
      CHECK_EQ(idle, (p - 1) * (t.forward + t.input_gradient - t.weight_gradient));
    CHECK_EQ(simulation.in_flight, std::vector<int64_t>(p, std::min(m, p)));
    for (int64_t i = 0; i < p; ++i) CHECK_EQ(simulation.in_flight_to_input[i], std::min(m, p - i));
  });
}

TEST(a_third_of_the_bubble_is_left_by_zb_h1) {
  const std::vector<StageTimes> equal(4);
  CHECK_EQ(simulate(make_schedule("1f1b", 4, 8), equal).bubble, 3.0 / 8);
  CHECK_EQ(simulate(make_schedule("interleaved:2", 4, 8), std::vector<StageTimes>(8)).bubble, 3.0 / 16);
  CHECK_EQ(simulate(make_schedule("zb-h1", 4, 8), equal).bubble, 3.0 / 24);
}

TEST(sends_take_time_and_keep_nobody_from_work) {
  const Schedule schedule = parse_schedule("F0 F1 B0 B1\nF0 B0 F1 B1");
  const Simulation simulation = simulate(schedule, {{1, 1, 1}, {1, 1, 1}}, 0.5);
  std::string text;
  for (const auto& [rank, action, start, end] : simulation.actions)
    text += std::to_string(rank) + ":" + str(action) + " " + test::show(start) + "-" + test::show(end) + " ";
  CHECK_EQ(text,
           std::string("0:F0 0-1 0:F1 1-2 1:F0 1.5-2.5 1:B0 2.5-4.5 1:F1 4.5-5.5 0:B0 5-7 1:B1 5.5-7.5 0:B1 8-10 "));
  CHECK_EQ(simulation.idle, (std::vector<double>{4, 4}));
  // Chunks of one rank send nothing.
  CHECK_EQ(simulate(make_schedule("interleaved:3", 1, 2), std::vector<StageTimes>(3), 9).bubble, 0.0);
}

TEST(unequal_stages_wait_for_the_slowest) {
  const Simulation simulation = simulate(make_schedule("gpipe", 2, 4), {{1, 1, 0}, {3, 2, 1}});
  CHECK_EQ(simulation.total, 1.0 + 4 * 6 + 1);
  CHECK_EQ(simulation.idle, (std::vector<double>{18, 2}));
  CHECK_EQ(simulation.bubble, 20.0 / 32);
}

TEST(the_order_of_a_simulation_has_what_an_action_waits_for_before_it) {
  std::mt19937 random(11);
  for (int i = 0; i < 120; ++i) {
    const int64_t p = random() % 6 + 1, m = random() % 12 + 1, v = random() % 3 + 2;
    const std::string kinds[] = {"gpipe", "1f1b", "zb-h1", "interleaved:" + std::to_string(v)};
    const Schedule schedule = make_schedule(kinds[i % 4], p, m);
    std::vector<StageTimes> times;
    for (int64_t s = 0; s < schedule.num_stages(); ++s)  // with many that take no time
      times.push_back({1.0 * (random() % 3), 0.5 * (random() % 3), 1.0 * (random() % 2)});
    const Simulation simulation = simulate(schedule, times, random() % 2);
    const Dependencies all(schedule);
    std::vector<bool> has_run(all.actions.size());
    std::vector<ActionId> next = all.first;
    bool holds = simulation.actions.size() == all.actions.size();
    for (size_t k = 0; k < simulation.actions.size(); ++k) {
      const ActionId id = next[simulation.actions[k].rank]++;
      holds = holds && all.actions[id].action == simulation.actions[k].action;
      holds = holds && (k == 0 || simulation.actions[k - 1].start <= simulation.actions[k].start);
      for (const ActionId need : all.actions[id].needs) holds = holds && (need == kNoAction || has_run[need]);
      has_run[id] = true;
    }
    CHECK(holds);
  }
}

TEST(times_that_are_none_are_refused) {
  const Schedule schedule = make_schedule("1f1b", 2, 2);
  CHECK_THROWS(ShardingError, simulate(schedule, {{}, {}, {}}),
               "there are times of 3 stages. Expected those of 2. Give one for each stage, or one number for all.");
  const auto refused = [&](const StageTimes& times, double send, const std::string& what) {
    CHECK_THROWS(ShardingError, simulate(schedule, {times, times}, send),
                 "the time of " + what + ". Expected a finite number that is at least 0. Write 1.0.");
  };
  refused({-1, 1, 1}, 0, "a forward is negative");
  refused({1, INFINITY, 1}, 0, "an input gradient is infinite");
  refused({1, 1, NAN}, 0, "a weight gradient is not a number");
  refused({1, 1, 1}, -0.5, "a send is negative");
}

TEST(a_large_schedule_is_simulated) {
  const Simulation simulation = simulate(make_schedule("interleaved:8", 64, 512), std::vector<StageTimes>(512));
  CHECK_EQ(simulation.actions.size(), 2u * 64 * 8 * 512);
  CHECK_EQ(simulation.total, 3.0 * (8 * 512 + 63));
}
