// SPDX-License-Identifier: Apache-2.0
// The runtime over a backend of doubles: collectives box by box, distinct shards, queueing, errors, Philox.
#include "base/error.h"
#include "base/philox.h"
#include "check.h"
#include "graph/text.h"
#include "runtime/fake_backend.h"
#include "runtime/step/engine.h"
#include "sharding/shards.h"

namespace spmdx {
namespace {

using namespace test;

struct Fixture {
  FakeBackend backend;
  Comm comm;
  CollectiveQueue collective_queue{comm};
};

MeshRef mesh() { return Mesh::make({0, 1, 2, 3, 4, 5}, {3, 2}, {"x", "y"}); }

void check_exchange(const Shape& shape, ShardingRef from, ShardingRef to) {
  Fixture fixture;
  const Shards moved = transfer_here(fixture.backend, DType::f64, {shape, from, to, {}}, shards_of(shape, from));
  CHECK_EQ(contents(moved), contents(shards_of(shape, to)));
}

CallRef call(const std::string& op, size_t inputs, const Shape& shape, bool param = false) {
  Call made;
  made.op = op;
  for (uint32_t i = 0; i < inputs; ++i) made.args.push_back(TensorArg{i});
  if (param) made.args.push_back(RealParam{0});
  made.num_params = param;
  made.inputs.assign(inputs, {DType::f64, shape});
  made.outputs = {{DType::f64, shape}};
  return seal(std::move(made));
}

DataRef ready(const Shape& shape, double value) {
  return std::make_shared<Data>(TensorType{DType::f64, shape}, nullptr, Shards{array(shape, value)});
}
DataRef pending(const Shape& shape) { return std::make_shared<Data>(TensorType{DType::f64, shape}); }

// out = op(x + p)
Graph chain(const std::string& op) {
  Graph graph;
  const ValueId x = graph.add_input({DType::f64, {2}}, "x");
  const ValueId sum = graph.add_node(call("aten.add.Scalar", 1, {2}, true), {x}, 0, 0);
  graph.num_params = 1;
  graph.outputs.push_back({graph.add_node(call(op, 1, {2}), {sum}), nullptr, kNone, false, 0});
  return graph;
}

}  // namespace

TEST(philox_known_answers) {
  CHECK(philox({0, 0, 0, 0}, 0, 0) == PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(philox({~0u, ~0u, ~0u, ~0u}, ~0u, ~0u) == PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0xa4093822, 0x299f31d0) ==
        PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST(exchange_moves_boxes) {
  const MeshRef m = mesh();
  for (const Shape& shape : {Shape{6, 4}, Shape{5, 3}, Shape{2, 1}, Shape{1, 7}}) {
    const std::vector<ShardingRef> layouts = {sharding(m, shape, {{}, {}}),    sharding(m, shape, {{0}, {}}),
                                              sharding(m, shape, {{}, {0}}),   sharding(m, shape, {{0}, {1}}),
                                              sharding(m, shape, {{1}, {0}}),  sharding(m, shape, {{0, 1}, {}}),
                                              sharding(m, shape, {{}, {1, 0}})};
    for (ShardingRef from : layouts)
      for (ShardingRef to : layouts) check_exchange(shape, from, to);
  }
}

TEST(exchange_reduces_partials) {
  const MeshRef m = mesh();
  const Shape shape = {5, 4};
  const auto sum = Reduction::sum;
  check_exchange(shape, sharding(m, shape, {{}, {}}, 1, sum), sharding(m, shape, {{}, {}}));
  check_exchange(shape, sharding(m, shape, {{}, {}}, 1, sum), sharding(m, shape, {{0}, {}}));
  check_exchange(shape, sharding(m, shape, {{}, {0}}, 2, sum), sharding(m, shape, {{1}, {0}}));
  check_exchange(shape, sharding(m, shape, {{1}, {}}, 1, sum), sharding(m, shape, {{}, {}}, 1, sum));
  check_exchange(shape, sharding(m, shape, {{}, {}}, 3, sum), sharding(m, shape, {{}, {}}));
}

// Adds up and puts together as its base does, and counts how often.
class CountingBackend final : public FakeBackend {
 public:
  BufferRef reduce(std::span<const BufferRef> buffers, Reduction reduction, int ours) override {
    ++sums;
    return FakeBackend::reduce(buffers, reduction, ours);
  }
  void concatenate(const BufferRef& dst, std::span<const BufferRef> parts, size_t dim) override {
    ++joins;
    FakeBackend::concatenate(dst, parts, dim);
  }
  int sums = 0, joins = 0;
};

TEST(a_small_sum_is_added_up_once_for_all_its_parts) {
  const MeshRef m = mesh();
  const auto sums = [&](const Shape& shape, const std::vector<SubAxisList>& before,
                        const std::vector<SubAxisList>& after, SubAxisSet partial) {
    CountingBackend backend;
    const ShardingRef from = sharding(m, shape, before, partial, Reduction::sum), to = sharding(m, shape, after);
    const Shards moved = transfer_here(backend, DType::f64, {shape, from, to, {}}, shards_of(shape, from));
    CHECK_EQ(contents(moved), contents(shards_of(shape, to)));
    return backend.sums;
  };
  CHECK_EQ(sums({6, 4}, {{}, {}}, {{0}, {}}, 1), 1);     // three parts of one sum
  CHECK_EQ(sums({5, 3}, {{}, {}}, {{0}, {}}, 1), 1);     // uneven
  CHECK_EQ(sums({6, 4}, {{}, {1}}, {{0}, {1}}, 1), 2);   // three parts of each of two sums
  CHECK_EQ(sums({6, 4}, {{}, {}}, {{0, 1}, {}}, 3), 1);  // six parts
  CHECK_EQ(sums({600, 40}, {{}, {}}, {{0}, {}}, 1), 3);  // large: each part by itself
}

TEST(shards_side_by_side_are_joined_at_once) {
  const MeshRef m = mesh();
  const auto joins = [&](const Shape& shape, const std::vector<SubAxisList>& before,
                         const std::vector<SubAxisList>& after) {
    CountingBackend backend;
    const ShardingRef from = sharding(m, shape, before), to = sharding(m, shape, after);
    const Shards moved = transfer_here(backend, DType::f64, {shape, from, to, {}}, shards_of(shape, from));
    CHECK_EQ(contents(moved), contents(shards_of(shape, to)));
    return backend.joins;
  };
  CHECK_EQ(joins({6, 4}, {{0}, {}}, {{}, {}}), 1);
  CHECK_EQ(joins({5, 3}, {{0}, {}}, {{}, {}}), 1);
  CHECK_EQ(joins({6, 4}, {{}, {0}}, {{}, {}}), 1);
  CHECK_EQ(joins({6, 4}, {{1}, {0}}, {{1}, {}}), 2);
  CHECK_EQ(joins({6, 4}, {{0}, {1}}, {{}, {}}), 0);  // tiles of two dims
  CHECK_EQ(joins({6, 4}, {{0}, {}}, {{}, {0}}), 0);  // a part of each
}

TEST(rows_change_places_between_devices) {
  const MeshRef m = mesh();
  const Shape shape = {6, 2};
  const RowMap rows = {0, {5, -1, 1, 0, 2, 4}};
  Fixture fixture;
  for (ShardingRef layout : {sharding(m, shape, {{0, 1}, {}}), sharding(m, shape, {{0}, {1}}),
                             sharding(m, shape, {{1}, {}}, 1, Reduction::sum), sharding(m, shape, {{}, {}})}) {
    const Shards moved =
        transfer_here(fixture.backend, DType::f64, {shape, layout, layout, rows}, shards_of(shape, layout));
    for (int64_t position = 0; position < m->size(); ++position) {
      const Box box = local_box(*layout, shape, position);
      std::vector<double> expected;
      for (int64_t r = box[0].start; r < box[0].start + box[0].extent; ++r)
        for (int64_t c = box[1].start; c < box[1].start + box[1].extent; ++c) {
          const int64_t source = rows.sources[r], term = distinct_index(*m, layout->partial, position);
          const double whole = static_cast<double>(source * 2 + c), share = term == 0 ? whole - 20 : 10;
          expected.push_back(source < 0 ? 0 : layout->partial ? share : whole);
        }
      CHECK_EQ(at(moved[distinct_index(*m, layout->used(), position)]).data, expected);
    }
  }
}

TEST(to_partial_keeps_the_data_once) {
  Fixture fixture;
  const MeshRef m = mesh();
  const Shape shape = {2};
  const ShardingRef whole = sharding(m, shape, {{}}), partial = sharding(m, shape, {{}}, 1, Reduction::max);
  const Shards before = shards_of(shape, whole);
  const Shards after = transfer_here(fixture.backend, DType::f64, {shape, whole, partial, {}}, before);
  const std::vector<std::vector<double>> expected = {{0, 1}, {-INFINITY, -INFINITY}, {-INFINITY, -INFINITY}};
  CHECK_EQ(contents(after), expected);
  CHECK(after[0] == before[0]);
}

TEST(op_runs_once_per_distinct_shard) {
  Fixture fixture;
  const MeshRef m = mesh();
  const Shape shape = {4};  // cut in 2, 2 and 0
  Graph graph;
  graph.mesh = m;
  const ValueId x = graph.add_input({DType::f64, shape}, "x");
  const ValueId y = graph.add_node(call("aten.neg", 1, shape), {x});
  graph.outputs.push_back({y, nullptr, kNone, false, 0});
  const ShardingRef cut = sharding(m, shape, {{0}});
  graph.inputs[0].physical = graph.values[x].sharding = graph.values[y].sharding = cut;
  Executable executable(graph, fixture.backend, fixture.collective_queue);
  kernel_runs = 0;
  const DataRef data = std::make_shared<Data>(TensorType{DType::f64, shape}, cut, shards_of(shape, cut));
  const std::vector<std::vector<double>> expected = {{0, 1}, {2, 3}, {}};
  CHECK_EQ(contents(executable.run({data}, {}, {}).outputs[0]), expected);
  CHECK_EQ(kernel_runs.load(), 2);  // neither for the empty shard nor again along y
}

TEST(steps_run_in_order_with_their_parameters) {
  Fixture fixture;
  Engine engine(fixture.backend, fixture.comm);
  DataRef data = ready({2}, 1);
  for (int i = 1; i <= 10; ++i) {
    const DataRef next = pending({2});
    engine.submit(engine.plan(chain("aten.sigmoid")), {data}, {{.real = double(i)}}, {next});
    data = next;
  }
  CHECK_EQ(at(data->wait()[0]).data, (std::vector<double>{56, 56}));
  engine.wait();
  const StepCounters counters = engine.counters();
  CHECK_EQ(counters.steps, 10);
  CHECK_EQ(counters.plans_compiled, 1);
  CHECK_EQ(counters.plan_cache_hits, 9);
}

TEST(a_plan_is_used_again_until_it_is_forgotten) {
  Fixture fixture;
  Engine engine(fixture.backend, fixture.comm);
  const PlanRef first = engine.plan(chain("aten.neg")), second = engine.plan(chain("aten.sigmoid"));
  CHECK(engine.reuse(first) && engine.last_plan() == first);
  CHECK(engine.reuse(second) && engine.last_plan() == second);
  CHECK_EQ(engine.counters().plan_cache_hits, 2);
  engine.clear_cache();
  CHECK(!engine.reuse(first));
  CHECK(engine.reuse(engine.plan(chain("aten.neg"))) && !engine.reuse(first));
}

TEST(a_brief_step_runs_on_the_thread_that_waits_for_it) {
  Fixture fixture;
  Engine engine(fixture.backend, fixture.comm);
  const auto run = [&](const DataRef& x, RunOn thread) {
    const DataRef y = pending({2});
    engine.submit(engine.plan(chain("aten.sigmoid")), {x}, {{.real = 1}}, {y}, thread);
    return y;
  };
  CHECK(run(ready({2}, 1), RunOn::caller_if_brief)->ready());
  CHECK_EQ(engine.counters().steps_of_readers, 1);
  // Not before steps that were submitted before it: the first waits for its input.
  const DataRef late = pending({2});
  const DataRef before = run(late, RunOn::step_thread), after = run(before, RunOn::caller_if_brief);
  CHECK(!after->ready());
  late->fill(ready({2}, 1)->wait());
  CHECK_EQ(at(after->wait()[0]).data, (std::vector<double>{3, 3}));
  engine.wait();
  CHECK_EQ(engine.counters().steps_of_readers, 1);
  CHECK_EQ(engine.counters().steps, 3);
}

TEST(a_brief_step_that_fails_says_so_as_others_do) {
  Fixture fixture;
  Engine engine(fixture.backend, fixture.comm);
  const DataRef bad = pending({2}), good = pending({2});
  engine.submit(engine.plan(chain("aten.relu")), {ready({2}, 1)}, {{.real = 1}}, {bad}, RunOn::caller_if_brief);
  engine.submit(engine.plan(chain("aten.neg")), {ready({2}, 1)}, {{.real = 1}}, {good}, RunOn::caller_if_brief);
  CHECK_EQ(engine.counters().steps_of_readers, 2);
  CHECK_THROWS(std::runtime_error, bad->wait(), "relu");
  CHECK_EQ(at(good->wait()[0]).data, (std::vector<double>{2, 2}));
  CHECK_THROWS(std::runtime_error, engine.rethrow(), "relu");
}

TEST(what_is_long_or_not_ours_runs_on_the_step_thread) {
  Fixture fixture;
  Engine engine(fixture.backend, fixture.comm);
  CHECK(engine.plan(chain("aten.neg"))->brief);
  Graph large;
  const ValueId x = large.add_input({DType::f64, {1 << 19}}, "x");
  large.outputs.push_back({large.add_node(call("aten.neg", 1, {1 << 19}), {x}), nullptr, kNone, false, 0});
  CHECK(!engine.plan(large)->brief);
  Graph row = parse_graph(
      "%0 = input f32[4194304, 4]\n%2 = input f32[4]\n"
      "%1 : f32[4194304, 4] = aten.select_scatter(%0, %2, 0, 5)\nreturn %1 tied %0 donates\n");
  CHECK(engine.plan(row)->brief);
}

TEST(dead_buffers_are_donated_but_not_inputs) {
  Fixture fixture;
  Executable executable(chain("aten.neg"), fixture.backend, fixture.collective_queue);
  const DataRef x = ready({2}, 3);
  kernel_donations = 0;
  CHECK_EQ(at(executable.run({x}, {{.real = 4}}, {}).outputs[0][0]).data, (std::vector<double>{7, 7}));
  CHECK_EQ(kernel_donations.load(), 1);
  CHECK_EQ(at(x->wait()[0]).data, (std::vector<double>{3, 3}));
}

// The input is overwritten: y = op(x + parameter) takes its place.
Graph overwriting(const std::string& op) {
  Graph graph = chain(op);
  graph.outputs[0].tied = 0;
  graph.outputs[0].donates = true;
  return graph;
}

TEST(an_overwritten_input_gives_up_its_memory) {
  Fixture fixture;
  Engine engine(fixture.backend, fixture.comm);
  for (const bool held_elsewhere : {false, true}) {
    DataRef x = ready({2}, 3);
    const DataRef other = held_elsewhere ? x : nullptr, y = pending({2});
    y->set_fallback(x);
    kernel_donations = 0;
    std::vector<DataRef> inputs(1);
    inputs[0] = std::move(x);  // a list in braces would hold it, too, as long as the call takes
    engine.submit(engine.plan(overwriting("aten.neg")), std::move(inputs), {{.real = 4}}, {y});
    CHECK_EQ(at(y->wait()[0]).data, (std::vector<double>{7, 7}));
    engine.wait();
    CHECK_EQ(kernel_donations.load(), held_elsewhere ? 1 : 2);
    if (other) CHECK_EQ(at(other->wait()[0]).data, (std::vector<double>{3, 3}));
  }
  CHECK_EQ(Executable(overwriting("aten.neg"), fixture.backend, fixture.collective_queue).peak().bytes, 2 * 8);
}

TEST(a_step_that_fails_while_it_overwrites_keeps_what_is_complete) {
  Fixture fixture;
  Engine engine(fixture.backend, fixture.comm);
  Graph graph = overwriting("aten.neg");  // updates x, then w fails half-way
  const ValueId w = graph.add_input({DType::f64, {2}}, "w");
  const ValueId half = graph.add_node(call("aten.neg", 1, {2}), {w});
  graph.outputs.push_back({graph.add_node(call("aten.relu", 1, {2}), {half}), nullptr, 1, true, 0});
  DataRef x = ready({2}, 3), old = ready({2}, 5);
  const DataRef updated = pending({2}), lost = pending({2});
  updated->set_fallback(x);
  lost->set_fallback(old);
  std::vector<DataRef> inputs(2);
  inputs[0] = std::move(x);
  inputs[1] = std::move(old);
  engine.submit(engine.plan(graph), std::move(inputs), {{.real = 4}}, {updated, lost});
  CHECK_EQ(at(updated->wait()[0]).data, (std::vector<double>{7, 7}));
  CHECK_THROWS(std::runtime_error, lost->wait(), "relu");
  CHECK_THROWS(std::runtime_error, lost->fallback()->wait(), "overwriting");
  engine.wait();
}

TEST(failed_step_fails_its_outputs_and_is_reported_once) {
  Fixture fixture;
  Engine engine(fixture.backend, fixture.comm);
  engine.set_translator([](std::exception_ptr, const Node& node) {
    return std::make_exception_ptr(std::runtime_error("train.py:3, in " + node.call->op));
  });
  const DataRef x = ready({2}, 1), bad = pending({2}), worse = pending({2}), good = pending({2});
  engine.submit(engine.plan(chain("aten.relu")), {x}, {{.real = 1}}, {bad});
  engine.submit(engine.plan(chain("aten.neg")), {bad}, {{.real = 1}}, {worse});
  engine.submit(engine.plan(chain("aten.neg")), {x}, {{.real = 1}}, {good});
  CHECK_THROWS(std::runtime_error, bad->wait(), "train.py:3, in aten.relu");
  CHECK_THROWS(std::runtime_error, worse->wait(), "train.py:3, in aten.relu");
  CHECK_EQ(at(good->wait()[0]).data, (std::vector<double>{2, 2}));
  engine.wait();
  CHECK_THROWS(std::runtime_error, engine.rethrow(), "train.py:3");
  engine.rethrow();  // the error was reported
  CHECK_EQ(engine.counters().steps, 3);
}

TEST(peak_bytes_counts_inputs_and_live_values) {
  Fixture fixture;
  const Executable executable(chain("aten.neg"), fixture.backend, fixture.collective_queue);
  CHECK_EQ(executable.peak().bytes, 2 * 2 * 8);
}

}  // namespace spmdx
