// SPDX-License-Identifier: Apache-2.0
// Threads that plan, run, ask and register rules at once; what they compute, and what a thread sanitizer says of it.
#include <deque>
#include <thread>

#include "base/error.h"
#include "check.h"
#include "rules/registered.h"
#include "runtime/fake_backend.h"
#include "runtime/step/engine.h"
#include "sharding/reshard/reshard.h"

namespace spmdx {
namespace {

using namespace test;

MeshRef row_of_four() { return Mesh::make({0, 1, 2, 3}, {4}, {"x"}); }

CallRef adds(const std::string& op, const Shape& shape) {
  Call made;
  made.op = op;
  made.inputs = made.outputs = {{DType::f64, shape}};
  made.args = {TensorArg{0}, RealParam{0}};
  made.num_params = 1;
  return seal(std::move(made));
}

// y = op(x) + a number, cut where the mesh is not null.
Graph program(const std::string& op, const Shape& shape, const MeshRef& on) {
  Graph graph;
  graph.mesh = on;
  graph.num_params = 1;
  const ValueId x = graph.add_input({DType::f64, shape}, "x");
  if (on) graph.inputs[0].annotation = sharding(on, shape, {{0}});
  graph.outputs.push_back({.value = graph.add_node(adds(op, shape), {x})});
  return graph;
}

struct Threads {
  FakeBackend backend;
  Comm comm;
  Engine engine{backend, comm};
  std::atomic<bool> over = false;
  std::atomic<int> wrong = 0;

  void trains(int turns) {
    for (int turn = 0; turn < turns; ++turn) {
      const Shape shape = {1 + turn % 61};
      const auto x = std::make_shared<Data>(TensorType{DType::f64, shape}, nullptr, Shards{array(shape, turn)});
      const auto y = std::make_shared<Data>(TensorType{DType::f64, shape});
      engine.submit(engine.plan(program("aten.neg", shape, nullptr)), {x}, {{.real = 1}}, {y});
      engine.plan(program("test.passed", shape, row_of_four()));
      if (at(y->wait().at(0)).data != std::vector<double>(static_cast<size_t>(shape[0]), turn + 1)) ++wrong;
    }
    over = true;
  }

  void asks() {
    for (int turn = 0; !over; ++turn) {
      CompileOptions options = engine.options();
      options.gather_budget = turn % 2 ? 0 : kNoLimit;
      if (turn % 16 == 0) engine.set_options(std::move(options));
      if (turn % 32 == 0) engine.clear_cache();
      (void)engine.counters();
      (void)engine.plans_kept();
      (void)engine.idle();
      if (const PlanRef plan = engine.last_plan(); plan && print(plan->executable->graph()).empty()) ++wrong;
      engine.wait_for_room();
    }
  }

  void registers() {
    for (int turn = 0; turn < 50 && !over; ++turn) {
      register_rule({.op = "test.passed", .letters = "a->a"}, 1, 1);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

  void reshards(int seed) {
    const MeshRef on = row_of_four();
    for (int turn = seed; !over; turn += 2) {
      const Shape shape = {4 + turn % 997, 8};
      const ReshardPlanRef plan =
          plan_reshard(DType::f32, shape, sharding(on, shape, {{0}, {}}), sharding(on, shape, {{}, {0}}), Topology{});
      if (plan->moves.empty()) ++wrong;
    }
  }
};

}  // namespace

TEST(threads_plan_run_and_ask_at_once) {
  Threads all;
  std::thread asks([&] { all.asks(); }), registers([&] { all.registers(); });
  std::thread first([&] { all.reshards(0); }), second([&] { all.reshards(1); });
  all.trains(400);
  for (std::thread* thread : {&asks, &registers, &first, &second}) thread->join();
  CHECK_EQ(all.wrong.load(), 0);
}

// The queue is never empty meanwhile: a wait is for the steps that were queued before it.
TEST(a_wait_ends_though_another_thread_goes_on_to_submit) {
  Threads all;
  std::thread submits([&] {
    std::deque<DataRef> ahead;
    while (!all.over) {
      const auto x = std::make_shared<Data>(TensorType{DType::f64, {4}}, nullptr, Shards{array({4}, 1)});
      ahead.push_back(std::make_shared<Data>(TensorType{DType::f64, {4}}));
      all.engine.submit(all.engine.plan(program("aten.neg", {4}, nullptr)), {x}, {{.real = 1}}, {ahead.back()});
      if (ahead.size() < 8) continue;
      ahead.front()->wait();
      ahead.pop_front();
    }
  });
  int64_t before = 0;
  for (int turn = 0; turn < 20; ++turn) {
    before = all.engine.standing().submitted;
    all.engine.wait();
    CHECK(all.engine.standing().done >= before);
  }
  all.over = true;
  submits.join();
}

}  // namespace spmdx
