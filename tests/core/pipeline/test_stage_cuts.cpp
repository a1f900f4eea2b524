// SPDX-License-Identifier: Apache-2.0
// Cuts of a chain into stages against brute force over all cuts, on chains drawn at random.
#include <algorithm>
#include <functional>
#include <random>

#include "check.h"
#include "passes/pipeline/in_flight.h"
#include "passes/pipeline/make_schedule.h"
#include "passes/pipeline/stage_cuts.h"

using namespace spmdx;

namespace {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

// Some chains have costs of few values, so that there are ties and exact fits.
class Drawn {
 public:
  explicit Drawn(unsigned seed) : random_(seed), most_(below(3) ? 1000 : 4) {}

  StageProblem problem() {
    StageProblem problem;
    const int64_t stages = 1 + below(6), layers = stages + below(11 - stages);
    problem.microbatches = 1 + below(12);
    for (int64_t i = 0; i < layers; ++i) problem.layers.push_back({cost(), cost(), cost(), cost(), cost()});
    const int64_t schedule = below(3);
    for (int64_t s = 0; s < stages; ++s)
      problem.in_flight.push_back(schedule == 0   ? problem.microbatches
                                  : schedule == 1 ? std::min(problem.microbatches, stages - s)
                                                  : below(5));
    problem.memory_limit = below(4) ? below(5 * most_ * layers / stages) : kNoLimit;
    return problem;
  }
  int64_t below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }

 private:
  int64_t cost() { return below(4) ? below(most_) : 0; }

  std::mt19937_64 random_;
  int64_t most_;
};

// What the formulas say of one cut, summed layer by layer.
struct Counted {
  int64_t step = 0, fullest = 0;
  std::vector<int64_t> bytes;
};

Counted count(const StageProblem& problem, const std::vector<size_t>& first) {
  Counted counted;
  int64_t sum = 0, longest = 0;
  for (size_t s = 0; s < first.size(); ++s) {
    const size_t end = s + 1 < first.size() ? first[s + 1] : problem.layers.size();
    int64_t time = end < problem.layers.size() ? problem.layers[end - 1].send_ns : 0, bytes = 0;
    for (size_t i = first[s]; i < end; ++i) {
      time += problem.layers[i].forward_ns + problem.layers[i].backward_ns;
      bytes += problem.layers[i].state_bytes + problem.in_flight[s] * problem.layers[i].activation_bytes;
    }
    sum += time;
    longest = std::max(longest, time);
    counted.bytes.push_back(bytes);
    counted.fullest = std::max(counted.fullest, bytes);
  }
  counted.step = sum + (problem.microbatches - 1) * longest;
  return counted;
}

// Calls `visit` with the first layers of the stages of every cut.
void each_cut(const StageProblem& problem, const std::function<void(const std::vector<size_t>&)>& visit) {
  std::vector<size_t> first{0};
  const std::function<void()> grow = [&] {
    if (first.size() == problem.in_flight.size()) return visit(first);
    for (size_t next = first.back() + 1; next < problem.layers.size(); ++next) {
      first.push_back(next);
      grow();
      first.pop_back();
    }
  };
  grow();
}

struct Truth {
  int64_t step = kNoLimit;     // the shortest of those that fit
  int64_t nearest = kNoLimit;  // bytes of the fullest stage where it is the least full
};

Truth brute_force(const StageProblem& problem) {
  Truth truth;
  each_cut(problem, [&](const std::vector<size_t>& first) {
    const Counted counted = count(problem, first);
    truth.nearest = std::min(truth.nearest, counted.fullest);
    if (counted.fullest <= problem.memory_limit) truth.step = std::min(truth.step, counted.step);
  });
  return truth;
}

bool some_nearest_cut_has(const StageProblem& problem, const Truth& truth, const StageMemoryError& error) {
  bool found = false;
  each_cut(problem, [&](const std::vector<size_t>& first) {
    const size_t end = error.stage + 1 < first.size() ? first[error.stage + 1] : problem.layers.size();
    const Counted counted = count(problem, first);
    found |= counted.fullest == truth.nearest && counted.bytes[error.stage] == truth.nearest &&
             first[error.stage] == error.first && end - 1 == error.last;
  });
  return found;
}

void check_fits(const StageProblem& problem, const Truth& truth) {
  const StageCuts cuts = choose_stage_cuts(problem);
  const Counted counted = count(problem, cuts.first);
  CHECK_EQ(cuts.step_ns, truth.step);
  CHECK_EQ(counted.step, truth.step);
  CHECK_EQ(cuts.stage_bytes, counted.bytes);
  CHECK(counted.fullest <= problem.memory_limit);
}

void check_refused(const StageProblem& problem, const Truth& truth) {
  try {
    choose_stage_cuts(problem);
    CHECK(false);
  } catch (const StageMemoryError& error) {
    const std::string said = "stage " + std::to_string(error.stage) + " (layer", what = error.what();
    CHECK_EQ(error.bytes_short, truth.nearest - problem.memory_limit);
    CHECK(some_nearest_cut_has(problem, truth, error));
    CHECK(what.starts_with(said) && what.find(" bytes on a device, " + std::to_string(error.bytes_short) +
                                              " more than the memory limit") != what.npos);
  }
}

StageProblem alike(size_t layers, size_t stages, int64_t microbatches) {
  return {std::vector<LayerCost>(layers, {1000, 2000, 10, 1, 7}), std::vector<int64_t>(stages, 1), microbatches};
}

}  // namespace

TEST(stage_cuts_are_those_of_brute_force) {
  int fitted = 0, refused = 0;
  for (unsigned seed = 0; seed < 10'000; ++seed) {
    const StageProblem problem = Drawn(seed).problem();
    const Truth truth = brute_force(problem);
    const bool fits = truth.step < kNoLimit;
    ++(fits ? fitted : refused);
    fits ? check_fits(problem, truth) : check_refused(problem, truth);
  }
  CHECK(fitted > 5000 && refused > 2500);
}

TEST(more_memory_never_worsens_the_stages) {
  for (unsigned seed = 0; seed < 1'000; ++seed) {
    StageProblem problem = Drawn(seed).problem();
    const int64_t nearest = brute_force(problem).nearest;
    std::vector<int64_t> limits{nearest, nearest + 1, nearest + nearest / 10, nearest + nearest / 2, 2 * nearest};
    std::sort(limits.begin(), limits.end());
    int64_t last = kNoLimit;
    for (const int64_t limit : limits) {
      problem.memory_limit = limit;
      const int64_t step = choose_stage_cuts(problem).step_ns;
      CHECK(step <= last);
      last = step;
    }
  }
}

TEST(layers_that_are_alike_are_shared_out_evenly) {
  for (const size_t layers : {64, 100, 1000})
    for (const int64_t microbatches : {1, 4, 64}) {
      const int64_t most = static_cast<int64_t>((layers + 63) / 64), all = static_cast<int64_t>(layers);
      const StageCuts cuts = choose_stage_cuts(alike(layers, 64, microbatches));
      CHECK_EQ(cuts.sum_ns, all * 3000 + 63 * 7);
      if (microbatches > 1) CHECK_EQ(cuts.longest_ns, most * 3000 + 7);
      CHECK_EQ(cuts.step_ns, cuts.sum_ns + (microbatches - 1) * cuts.longest_ns);
    }
}

// The first stages of 1F1B keep the activations of more microbatches: under a tight limit they have fewer layers.
TEST(stages_with_more_in_flight_get_fewer_layers) {
  StageProblem problem = alike(10, 4, 8);
  problem.in_flight = {4, 3, 2, 1};
  CHECK_EQ(choose_stage_cuts(problem).longest_ns, 3 * 3000 + 7);
  for (LayerCost& layer : problem.layers) layer.activation_bytes = 10;
  problem.memory_limit = 100;  // layers of 50, 40, 30 and 20 bytes
  CHECK_EQ(choose_stage_cuts(problem).first, (std::vector<size_t>{0, 2, 4, 7}));
}

TEST(a_stage_keeps_what_its_schedule_has_it_hold) {
  const auto of = [](const char* kind, int64_t ranks, int64_t microbatches) {
    return in_flight_of_stages(make_schedule(kind, ranks, microbatches));
  };
  using Counts = std::vector<int64_t>;
  CHECK_EQ(of("gpipe", 3, 8), (Counts{8, 8, 8}));
  CHECK_EQ(of("1f1b", 4, 8), (Counts{4, 3, 2, 1}));
  CHECK_EQ(of("1f1b", 4, 2), (Counts{2, 2, 2, 1}));
  CHECK_EQ(of("zb-h1", 4, 8), (Counts{4, 4, 4, 4}));
  CHECK_EQ(of("interleaved:2", 2, 4), (Counts{4, 3, 2, 1}));
}

TEST(stages_of_one_device_share_its_memory_and_are_called_by_their_names) {
  StageProblem problem = alike(4, 4, 8);
  problem.names = {"embed", "blocks.0", "blocks.1", "head"};
  problem.chunks = 2;
  problem.memory_limit = 22;
  CHECK_EQ(choose_stage_cuts(problem).stage_bytes, (std::vector<int64_t>(4, 11)));
  problem.memory_limit = 20;
  CHECK_THROWS(ShardingError, choose_stage_cuts(problem),
               "stage 0 (module embed) needs 11 bytes on a device, 1 more than 10, its part of the memory limit of 20. "
               "Expected cuts where every stage fits, and of all cuts into 4 stages these come nearest. Raise the "
               "limit by spmdx.set_memory_limit, use more stages or smaller microbatches, or cut the parameters along "
               "another axis.");
}

TEST(stages_that_cannot_be_are_refused) {
  CHECK_THROWS(ShardingError, choose_stage_cuts(alike(3, 4, 1)),
               "the model has 3 layers for 4 stages. Expected a layer for each stage. Use fewer stages, or cut at "
               "smaller modules.");
  StageProblem problem = alike(4, 2, 1);
  problem.layers[2].state_bytes = 1000;
  problem.memory_limit = 500;
  CHECK_THROWS(StageMemoryError, choose_stage_cuts(problem),
               "stage 1 (layers 2 to 3) needs 1012 bytes on a device, 512 more than the memory limit of 500. Expected "
               "cuts where every stage fits, and of all cuts into 2 stages these come nearest. Raise the limit by "
               "spmdx.set_memory_limit, use more stages or smaller microbatches, or cut the parameters along another "
               "axis.");
  CHECK_THROWS(InternalError, choose_stage_cuts({}), "without stages");
}
