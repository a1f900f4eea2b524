// SPDX-License-Identifier: Apache-2.0
// Ways to lay a program over devices: that all are listed, once, and that estimates of simple ones are what sums say.
#include <algorithm>
#include <random>
#include <set>

#include "check.h"
#include "passes/parallelism/estimate.h"
#include "passes/parallelism/parallelism.h"
#include "passes/parallelism/settle.h"

using namespace spmdx;

namespace {

ParallelismSpace space_of(int64_t devices, int64_t samples) {
  return {.devices = devices,
          .samples = samples,
          .most_model = devices,
          .most_stages = 6,
          .zero = {0, 1},
          .schedules = {"1f1b", "interleaved:2"}};
}

Topology one_level() {
  Topology topology;
  topology.levels = {{.devices = 0, .latency_ns = 100, .message_ns = 0, .picoseconds_per_byte = 1000}};
  return topology;
}

// Two parts, of which the second is there three times.
ModelCost four_layers() {
  ModelCost cost;
  cost.parts = {{.forward_ns = 100, .backward_ns = 200, .activation_bytes = 10, .output_bytes = 0},
                {.forward_ns = 1000,
                 .backward_ns = 2000,
                 .activation_bytes = 500,
                 .parameter_bytes = 4000,
                 .gradient_bytes = 4000,
                 .state_bytes = 8000,
                 .accumulate_ns = 10,
                 .update_ns = 40}};
  cost.order = {0, 1, 1, 1};
  return cost;
}

}  // namespace

TEST(parallelisms_are_all_factorisations_that_divide_the_batch) {
  for (int64_t devices : {1, 2, 6, 8, 12}) {
    for (int64_t samples : {1, 8, 12, 60}) {
      const ParallelismSpace space = space_of(devices, samples);
      const std::vector<Parallelism> all = parallelisms(space);
      CHECK(std::set<Parallelism>(all.begin(), all.end()).size() == all.size());
      for (const Parallelism& one : all) {
        CHECK(one.devices() == devices);
        CHECK(samples % (one.data * one.microbatches) == 0);
        CHECK(one.pipe * one.chunks <= space.most_stages);
        CHECK((one.pipe == 1) == one.schedule.empty());
        CHECK(one.zero == 0 || one.data > 1);
      }
      for (int64_t data = 1; data <= devices; ++data) {
        for (int64_t model = 1; data * model <= devices; ++model) {
          if (devices % (data * model)) continue;
          const int64_t pipe = devices / data / model;
          const bool there = std::ranges::any_of(
              all, [&](const Parallelism& p) { return p.data == data && p.model == model && p.pipe == pipe; });
          CHECK(there == (samples % data == 0 && pipe <= space.most_stages));
        }
      }
    }
  }
}

TEST(the_model_axis_is_bounded_but_may_have_all_devices) {
  ParallelismSpace space = space_of(16, 16);
  space.most_model = 2;
  std::set<int64_t> sizes;
  for (const Parallelism& one : parallelisms(space)) sizes.insert(one.model);
  CHECK(sizes == std::set<int64_t>({1, 2, 16}));
}

TEST(microbatches_are_few_sizes_and_the_whole) {
  ParallelismSpace space = space_of(1, 720720);
  std::set<int64_t> sizes;
  for (const Parallelism& one : parallelisms(space)) sizes.insert(space.samples / one.microbatches);
  CHECK(sizes == std::set<int64_t>({1, 2, 3, 4, 5, 720720}));
}

TEST(an_estimate_of_one_device_is_the_sum_of_its_parts) {
  const Estimate one = estimate({.microbatches = 5}, four_layers(), one_level(), 0);
  CHECK(one.step_ns == 5 * (300 + 3 * 3000) + 4 * 3 * 10 + 3 * 40);
  CHECK(one.peak_bytes == 10 + 3 * (500 + 16000));
  CHECK(one.wire_bytes == 0);
  CHECK(one.short_bytes == 0);
}

TEST(data_parallelism_sums_gradients_beside_the_backward_pass) {
  const Estimate two = estimate({.data = 2}, four_layers(), one_level(), 0);
  const int64_t sum = one_level().cost_ns(Collective::all_reduce, 4000);
  CHECK(two.wire_bytes == 3 * 4000);
  // The first part's backward pass, of 200 ns, is beside what is left of the sums.
  int64_t wire = 0, computed = 0;
  for (int64_t backward : {2000, 2000, 2000}) wire = std::max(wire, computed += backward) + sum;
  CHECK(two.step_ns == 3 * 1000 + 100 + std::max(wire, computed + 200) + 3 * 40);
}

TEST(zero_shares_what_its_stage_says) {
  const auto peak = [](int zero, int64_t data) {
    return estimate({.data = data, .zero = zero}, four_layers(), one_level(), 0).peak_bytes;
  };
  const int64_t kept = 10 + 3 * 500;
  CHECK(peak(0, 4) == kept + 3 * 16000);
  CHECK(peak(1, 4) == kept + 3 * (8000 + 2000));
  CHECK(peak(2, 4) == kept + 3 * (4000 + 1000 + 2000));
  CHECK(peak(3, 4) == kept + 3 * (1000 + 1000 + 2000) + 2 * 4000);  // and two gathered parts
}

TEST(zero_moves_activations_where_that_is_less_than_gathering_parameters) {
  ModelCost cost;
  cost.parts = {{.forward_ns = 1000, .backward_ns = 2000, .parameter_bytes = 400'000, .gradient_bytes = 400'000}};
  cost.order = {0};
  const auto estimated = [&](int64_t output_bytes) {
    cost.parts[0].output_bytes = output_bytes;
    return estimate({.data = 4, .microbatches = 2, .zero = 3}, cost, one_level(), 0);
  };
  const int64_t one = one_level().cost_ns(Collective::all_gather, 3 * 8);  // of four devices' 8 bytes, and back
  CHECK_EQ(estimated(8).step_ns, 2 * (3000 + 6 * 2 * one));
  CHECK_EQ(estimated(8).wire_bytes, 2 * 6 * 2 * 3 * 8);
  CHECK_EQ(estimated(8).peak_bytes, 2 * 100'000);
  const int64_t gathered = one_level().cost_ns(Collective::all_gather, 300'000);
  CHECK_EQ(estimated(1'000'000).step_ns, 2 * 3 * gathered + gathered);  // twice, and the gradient; its last sum behind
  CHECK_EQ(estimated(1'000'000).wire_bytes, 2 * 3 * 300'000);
  CHECK_EQ(estimated(1'000'000).peak_bytes, 2 * 100'000 + 2 * 400'000);
}

TEST(a_pipeline_of_equal_layers_takes_its_closed_form) {
  ModelCost cost;
  cost.parts = {{.forward_ns = 1000, .backward_ns = 2000, .activation_bytes = 100}};
  cost.order.assign(8, 0);
  for (int64_t pipe : {2, 4, 8}) {
    for (int64_t microbatches : {4, 8, 16}) {
      const Parallelism piped{.pipe = pipe, .microbatches = microbatches, .schedule = "1f1b"};
      const Estimate found = estimate(piped, cost, one_level(), 0);
      CHECK(found.step_ns == (3 * microbatches + 2 * (pipe - 1)) * 1000 * (8 / pipe));  // sums of weights are beside it
      CHECK(found.peak_bytes == std::min(pipe, microbatches) * 100 * (8 / pipe));
      CHECK(found.first.size() == static_cast<size_t>(pipe));
    }
  }
}

TEST(stages_that_share_processors_record_what_the_others_run_and_send) {
  ModelCost cost;
  cost.parts = {{.forward_ns = 1000,
                 .backward_ns = 2000,
                 .output_bytes = 70,
                 .update_ns = 100,
                 .ops = 30,
                 .accumulate_ops = 4,
                 .update_ops = 5}};
  cost.order.assign(8, 0);
  Topology shared = one_level();
  shared.processors = 1;
  shared.record_ns = 7;
  shared.levels[0].processor_usage = 1;
  const auto estimated = [&](int64_t pipe) {
    return estimate({.pipe = pipe, .microbatches = 4, .schedule = pipe > 1 ? "1f1b" : ""}, cost, shared, 0).step_ns;
  };
  CHECK_EQ(estimated(1), 8 * (4 * 3000 + 100));
  for (int64_t pipe : {2, 4, 8}) {
    const int64_t worked = 8 / pipe * 4 * 3000, update = 8 / pipe * 100;
    const int64_t recorded = 8 * (4 * 30 + 3 * 4 + 5) * 7 * (pipe - 1) / pipe;
    const int64_t sent = 4 * (pipe - 1) * 4 * shared.cost_ns(Collective::send_recv, 70, Group(2)) / pipe;
    CHECK_EQ(estimated(pipe), worked + update + recorded + sent);
  }
}

TEST(a_rank_receives_what_all_its_stages_do) {
  ModelCost cost;
  cost.parts = {{.forward_ns = 1000, .backward_ns = 2000, .output_bytes = 70}};
  cost.order.assign(8, 0);
  const auto received = [&](int64_t pipe, int64_t chunks) {
    const std::string schedule = chunks == 1 ? "1f1b" : "interleaved:" + std::to_string(chunks);
    return estimate({.pipe = pipe, .microbatches = 4, .schedule = schedule, .chunks = chunks}, cost, one_level(), 0)
        .wire_bytes;
  };
  CHECK(received(2, 1) == 4 * 70);            // activations, or their gradients
  CHECK(received(4, 1) == 4 * 2 * 70);        // those in the middle get both
  CHECK(received(2, 2) == 4 * (1 + 2) * 70);  // an end and the middle
  CHECK(received(4, 2) == 4 * 4 * 70);
}

TEST(what_does_not_fit_is_computed_again_or_told) {
  const Parallelism one{.microbatches = 2};
  const Estimate free = estimate(one, four_layers(), one_level(), 0);
  const Estimate tight = estimate(one, four_layers(), one_level(), free.peak_bytes - 755);
  CHECK(tight.short_bytes == 0);
  CHECK(tight.peak_bytes == free.peak_bytes - 755);
  CHECK(tight.recomputed_ns > 0);
  CHECK(tight.step_ns == free.step_ns + tight.recomputed_ns);
  const Estimate none = estimate(one, four_layers(), one_level(), 1000);
  CHECK(none.short_bytes > 0);
}

TEST(a_larger_limit_never_makes_an_estimate_slower) {
  std::mt19937 random(7);
  for (int i = 0; i < 300; ++i) {
    ModelCost cost;
    for (int p = 0; p < 3; ++p)
      cost.parts.push_back({.forward_ns = static_cast<int64_t>(random() % 1000),
                            .backward_ns = static_cast<int64_t>(random() % 2000),
                            .activation_bytes = static_cast<int64_t>(random() % 500),
                            .output_bytes = static_cast<int64_t>(random() % 50),
                            .parameter_bytes = static_cast<int64_t>(random() % 500),
                            .gradient_bytes = static_cast<int64_t>(random() % 500),
                            .state_bytes = static_cast<int64_t>(random() % 500)});
    for (int p = 0; p < 6; ++p) cost.order.push_back(random() % 3);
    const std::vector<Parallelism> all = parallelisms(space_of(4, 8));
    const Parallelism& one = all[random() % all.size()];
    const int64_t limit = 1 + random() % 5000;
    const Estimate less = estimate(one, cost, one_level(), limit), more = estimate(one, cost, one_level(), limit + 700);
    CHECK(more.step_ns <= less.step_ns);
    CHECK(more.short_bytes <= less.short_bytes);
  }
}

TEST(settling_finds_the_best_of_few_and_a_descent_of_many) {
  std::mt19937 random(3);
  const std::vector<size_t> few = {3, 2, 3}, many(9, 3);
  std::vector<double> table(18);
  for (double& entry : table) entry = static_cast<double>(random() % 1000);
  const auto place = [](const Options& at) { return (at[0] * 2 + at[1]) * 3 + at[2]; };
  const Options best = settle(few, {}, 1, [&](const Options& at) { return table[place(at)]; });
  CHECK(table[place(best)] == *std::ranges::min_element(table));
  // Of independent choices a descent finds the best of each.
  const auto separate = [](const Options& at) {
    double cost = 0;
    for (size_t i = 0; i < at.size(); ++i) cost += static_cast<double>((at[i] + i) % 3);
    return cost;
  };
  CHECK(separate(settle(many, {Options(9, 0)}, 1, separate)) == 0);
  // It is never worse than the best start.
  const auto rough = [](const Options& at) {
    uint64_t hash = 17;
    for (size_t option : at) hash = hash * 31 + option * 7 + 3;
    return static_cast<double>(hash % 1009);
  };
  const std::vector<Options> starts = {Options(9, 0), Options(9, 1), Options(9, 2)};
  for (const Options& start : starts) CHECK(rough(settle(many, starts, 2, rough)) <= rough(start));
}
