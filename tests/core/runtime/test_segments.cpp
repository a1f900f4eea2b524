// SPDX-License-Identifier: Apache-2.0
// Segments over a backend of doubles: where programs are cut, and how kernels of segments take over.
#include <map>

#include "base/error.h"
#include "check.h"
#include "graph/text.h"
#include "runtime/fake_backend.h"
#include "runtime/segments/fuse.h"
#include "runtime/step/executor.h"

namespace spmdx {
namespace {

using namespace test;

enum class Fault { none, throws, throws_later, is_wrong };

// Adds up operands and parameters, op by op, as the backend of these tests does.
class FakeSegment final : public Kernel {
 public:
  FakeSegment(const Graph& graph, Fault fault, int& runs) : graph_(graph), fault_(fault), runs_(runs) {}
  void run(std::span<const BufferRef> inputs, std::span<const Param> params, std::span<BufferRef> outputs,
           int) override {
    ++runs_;
    if (fault_ == Fault::throws || (fault_ == Fault::throws_later && runs_ > 1))
      throw std::runtime_error("out of order");
    std::map<ValueId, Array> values;
    for (size_t i = 0; i < inputs.size(); ++i)
      values[graph_.inputs[i].value] = std::make_shared<Doubles>(at(inputs[i]));
    for (const Node& node : graph_.nodes) {
      double start = node.call->num_params ? params[node.param].real : 0;
      for (const Arg& arg : node.call->args)
        if (const auto* constant = std::get_if<double>(&arg)) start += *constant;
      Array sum = array(node.call->outputs[0].shape, start);
      for (const ValueId input : node.inputs)
        for (size_t e = 0; e < sum->data.size(); ++e) sum->data[e] += values[input]->data[e];
      values[node.output] = sum;
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      const Array& result = values[graph_.outputs[i].value];
      if (fault_ == Fault::is_wrong) result->data[0] += 1;
      outputs[i] = result;
    }
  }

 private:
  const Graph graph_;
  Fault fault_;
  int& runs_;
};

// As the passes leave it: values of inputs have the shardings of their data.
Graph compiled(const std::string& text) {
  Graph graph = parse_graph(text);
  for (const Input& input : graph.inputs) graph.values[input.value].sharding = input.physical;
  return graph;
}

// Takes all but aten.abs, and makes kernels once `ready` is set.
class FakeCompiler final : public Compiler {
 public:
  bool takes(const Call& local) const override { return local.op != "aten.abs" && local.op != left; }
  bool takes_numbers(const Call&) const override { return takes_any_number; }
  std::shared_ptr<Kernel> kernel(const Segment& segment) override {
    asked[segment.text] += 1;
    if (!ready || !refused.empty()) return nullptr;
    return std::make_shared<FakeSegment>(segment.graph, fault, runs);
  }
  CompileStanding standing(const Segment&) const override {
    return {ready ? CompileState::compiled : CompileState::waiting, refused, 0};
  }
  void refuse(const Segment&, const std::string& why) override { refused = why; }
  void await() override {}
  bool in_place() const override { return writes_over; }
  bool checks() const override { return is_checking; }
  uint64_t version() const override { return ready + 2 * !refused.empty() + 4 * !left.empty(); }
  uint64_t cuts() const override { return !left.empty(); }

  std::map<std::string, int> asked;
  std::string refused, left;  // `left`: an op that is not taken any more
  bool ready = false, is_checking = true, takes_any_number = true, writes_over = false;
  Fault fault = Fault::none;
  int runs = 0;
};

class CompilingBackend final : public FakeBackend {
 public:
  std::shared_ptr<const Compilers> compilers() override { return compiler_of_tests ? all_of_tests : nullptr; }
  std::shared_ptr<FakeCompiler> compiler_of_tests = std::make_shared<FakeCompiler>();
  std::shared_ptr<Compilers> all_of_tests = std::make_shared<Compilers>(Compilers{{compiler_of_tests}, {}});
};

struct Compiling {
  CompilingBackend backend;
  Comm comm;
  CollectiveQueue collective_queue{comm};

  FakeCompiler& compiler() { return *backend.compiler_of_tests; }
  std::string text_of_first_segment(const std::string& text) {
    const Graph graph = compiled(text);
    const Program program = prepare(graph, backend, comm.processes());
    const std::vector<Unit> units = units_of(graph, program, *backend.all_of_tests, {});
    for (const Segment& segment : segments_of(graph, program, units, *backend.all_of_tests, {}))
      if (!segment.text.empty()) return segment.text;
    return "";
  }
  // Nodes of every unit, in their order; those of segments in brackets.
  std::string units(const std::string& text, bool changes = false) {
    const Graph graph = compiled(text);
    const Program program = prepare(graph, backend, comm.processes());
    const Numbers numbers{{{.real = 1}, {.real = 2}}, {changes, changes}};
    std::string told;
    for (const Unit& unit : units_of(graph, program, *backend.all_of_tests, numbers)) {
      std::string nodes;
      for (const uint32_t index : unit.instructions)
        nodes += (nodes.empty() ? "" : " ") + std::to_string(program.instructions[index].node);
      told += (told.empty() ? "" : ", ") + (unit.is_segment ? "[" + nodes + "]" : nodes);
    }
    return told;
  }
};

DataRef filled(const Shape& shape, double value) {
  return std::make_shared<Data>(TensorType{DType::f64, shape}, nullptr, Shards{array(shape, value)});
}

const std::string kChain = R"(
  %0 = input "x" f64[2]
  %1 : f64[2] = aten.add.Scalar(%0, real#0)
  %2 : f64[2] = aten.abs(%1)
  %3 : f64[2] = aten.add.Tensor(%1, %0)
  %4 : f64[2] = aten.add.Tensor(%2, %3)
  %5 : f64[2] = aten.add.Scalar(%4, real#1)
  return %5
  return %3
)";

}  // namespace

TEST(segments_lie_between_ops_that_the_compiler_leaves) {
  Compiling fixture;
  CHECK_EQ(fixture.units(kChain), "[0 2], 1, [3 4]");
}

TEST(what_reads_nothing_of_a_segment_does_not_divide_it) {
  Compiling fixture;
  CHECK_EQ(fixture.units(R"(
    %0 = input "x" f64[2]
    %1 : f64[2] = aten.neg(%0)
    %2 : f64[2] = aten.abs(%0)
    %3 : f64[2] = aten.add.Tensor(%1, %2)
    %4 : f64[2] = aten.neg(%3)
    return %4
  )"),
           "1, [0 2 3]");
}

TEST(an_op_that_is_large_is_a_segment_alone) {
  const auto units = [](const std::string& type) {
    return Compiling().units("%0 = input \"x\" " + type + "\n%1 : " + type + " = aten.abs(%0)\n%2 : " + type +
                             " = aten.mm(%1, %1)\nreturn %2\n");
  };
  CHECK_EQ(units("f64[64, 64]"), "0, [1]");
  CHECK_EQ(units("f64[8, 8]"), "0, 1");
}

TEST(each_shard_has_its_segments_and_no_op_passes_a_collective) {
  Compiling fixture;
  CHECK_EQ(fixture.units(R"(
    mesh(x=2)
    %0 = input "x" f64[4@x]
    %1 = input "w" f64[2] replicated
    %2 : f64[4@x] = aten.neg(%0)
    %3 : f64[2] replicated = aten.neg(%1)
    %4 : f64[4@x] = aten.neg(%2)
    %5 : f64[2] replicated = aten.neg(%3)
    %6 : f64[4] replicated = spmdx.comm.all_gather(%4) over x bytes 16
    %7 : f64[4] replicated = aten.neg(%6)
    %8 : f64[2] replicated = aten.neg(%5)
    return %7
    return %8
  )"),
           "[1 3], [0 2], [0 2], 4, [5 6]");
}

TEST(kernels_take_over_between_two_runs) {
  Compiling fixture;
  Executable executable(parse_graph(kChain), fixture.backend, fixture.collective_queue);
  const std::vector<Param> params = {{.real = 3}, {.real = 10}};
  const std::vector<std::vector<double>> sum = {{19, 19}}, part = {{5, 5}};  // (1 + 3) + (1 + 3 + 1) + 10
  for (const bool is_ready : {false, true, true}) {
    fixture.compiler().ready = is_ready;
    kernel_runs = 0;
    const RunResult result = executable.run({filled({2}, 1)}, params, {});
    CHECK_EQ(contents(result.outputs[0]), sum);
    CHECK_EQ(contents(result.outputs[1]), part);
  }
  CHECK_EQ(fixture.compiler().runs, 4);  // of two segments
  CHECK_EQ(kernel_runs.load(), 1);       // aten.abs: only the first run of a kernel is compared
  CHECK_EQ(fixture.compiler().asked.size(), 2u);
  CHECK_EQ(executable.segments().segments.size(), 2u);
  CHECK_EQ(executable.segments().ops, 5);
}

TEST(a_kernel_that_fails_or_is_wrong_gives_way) {
  for (const auto& [fault, why] : {std::pair{Fault::throws, "it failed: out of order"},
                                   std::pair{Fault::is_wrong,
                                             "its result of aten.add.Tensor is not that of PyTorch's "
                                             "kernels"}}) {
    Compiling fixture;
    fixture.compiler().ready = true;
    fixture.compiler().fault = fault;
    Executable executable(parse_graph(kChain), fixture.backend, fixture.collective_queue);
    for (int run = 0; run < 3; ++run) {
      const RunResult result = executable.run({filled({2}, 1)}, {{.real = 3}, {.real = 10}}, {});
      CHECK_EQ(contents(result.outputs[0]), (std::vector<std::vector<double>>{{19, 19}}));
    }
    CHECK_EQ(fixture.compiler().runs, 2);  // each of the two segments once
    CHECK_EQ(fixture.compiler().refused.starts_with("it"), true);
    if (fault == Fault::throws) CHECK_EQ(fixture.compiler().refused, why);
  }
}

TEST(without_a_compiler_a_program_is_as_before) {
  Compiling fixture;
  fixture.compiler().ready = true;
  Executable executable(parse_graph(kChain), fixture.backend, fixture.collective_queue);
  executable.run({filled({2}, 1)}, {{.real = 3}, {.real = 10}}, {});
  fixture.backend.compiler_of_tests.reset();
  kernel_runs = 0;
  const RunResult result = executable.run({filled({2}, 1)}, {{.real = 3}, {.real = 10}}, {});
  CHECK_EQ(contents(result.outputs[0]), (std::vector<std::vector<double>>{{19, 19}}));
  CHECK_EQ(kernel_runs.load(), 5);
  CHECK_EQ(executable.segments().segments.size(), 0u);
}

TEST(numbers_are_constants_until_they_change) {
  Compiling fixture;
  fixture.compiler().takes_any_number = false;
  CHECK_EQ(fixture.units(kChain), "[0 2], 1, [3 4]");
  CHECK_EQ(fixture.units(kChain, true), "0, 1, [2 3], 4");
  fixture.compiler().ready = true;
  fixture.compiler().is_checking = false;
  Executable executable(compiled(kChain), fixture.backend, fixture.collective_queue);
  std::vector<double> sums;
  for (const double rate : {10.0, 10.0, 20.0, 30.0})
    sums.push_back(at(executable.run({filled({2}, 1)}, {{.real = 3}, {.real = rate}}, {}).outputs[0][0]).data[0]);
  CHECK_EQ(sums, (std::vector<double>{19, 19, 29, 39}));
  CHECK_EQ(executable.segments().segments.size(), 1u);  // that of the other number, which has not changed
}

TEST(a_program_is_cut_again_when_an_op_is_left) {
  Compiling fixture;
  Executable executable(parse_graph(kChain), fixture.backend, fixture.collective_queue);
  const auto sum = [&] {
    return at(executable.run({filled({2}, 1)}, {{.real = 3}, {.real = 10}}, {}).outputs[0][0]).data[0];
  };
  CHECK_EQ(sum(), 19.0);
  CHECK_EQ(executable.segments().segments.size(), 2u);
  fixture.compiler().left = "aten.add.Scalar";
  fixture.compiler().ready = true;
  fixture.compiler().is_checking = false;
  CHECK_EQ(sum(), 19.0);
  CHECK_EQ(executable.segments().segments.size(), 1u);  // of the two that add tensors
  CHECK_EQ(executable.segments().segments[0].ops, 2);
  CHECK_EQ(fixture.compiler().runs, 1);
}

TEST(equal_segments_of_shards_are_asked_for_by_one_text) {
  Compiling fixture;
  const Graph graph = compiled(R"(
    mesh(x=2)
    %0 = input "x" f64[4@x]
    %1 : f64[4@x] = aten.add.Scalar(%0, real#0)
    %2 : f64[4@x] = aten.neg(%1)
    return %2
  )");
  const Program program = prepare(graph, fixture.backend, fixture.comm.processes());
  const Numbers numbers{{{.real = 1}}, {false}};
  const std::vector<Unit> units = units_of(graph, program, *fixture.backend.all_of_tests, numbers);
  const std::vector<Segment> segments = segments_of(graph, program, units, *fixture.backend.all_of_tests, numbers);
  CHECK_EQ(segments.size(), 2u);
  CHECK_EQ(segments[0].text, segments[1].text);
  CHECK_EQ(segments[0].text,
           "%0 = input f64[2]\n%1 : f64[2] = aten.add.Scalar(%0, real#0)\n%2 : f64[2] = aten.neg(%1)\nreturn %2\n");
}

const std::string kUpdate = R"(
  %0 = input "x" f64[2]
  %1 = input "m" f64[2]
  %2 : f64[2] = aten.add.Tensor(%0, %1)
  %3 : f64[2] = aten.neg(%2)
  return %2 tied %0 donates
  return %3 tied %1 donates
)";

TEST(what_replaces_an_input_is_written_over_it_unless_that_is_read_elsewhere) {
  Compiling fixture;
  const auto returned = [&](const std::string& text) {
    const std::string all = fixture.text_of_first_segment(text);
    return all.substr(all.find("return"));
  };
  CHECK_EQ(returned(kUpdate), "return %2\nreturn %3\n");
  fixture.compiler().writes_over = true;
  CHECK_EQ(returned(kUpdate), "return %2 tied %0 donates\nreturn %3 tied %1 donates\n");
  CHECK_EQ(returned(R"(
    %0 = input "x" f64[2]
    %1 = input "m" f64[2]
    %2 : f64[2] = aten.add.Tensor(%0, %1)
    %3 : f64[2] = aten.neg(%2)
    %4 : f64[2] = aten.abs(%0)
    return %2 tied %0 donates
    return %3 tied %1 donates
    return %4
  )"),
           "return %2\nreturn %3 tied %1 donates\n");
}

TEST(a_kernel_that_fails_once_it_writes_over_inputs_ends_the_step) {
  for (const bool checks : {true, false}) {
    Compiling fixture;
    fixture.compiler().ready = fixture.compiler().writes_over = true;
    fixture.compiler().is_checking = checks;
    fixture.compiler().fault = Fault::throws_later;
    Executable executable(parse_graph(kUpdate), fixture.backend, fixture.collective_queue);
    const auto run = [&] { return executable.run({filled({2}, 1), filled({2}, 2)}, {}, {}); };
    CHECK_EQ(contents(run().outputs[0]), (std::vector<std::vector<double>>{{3, 3}}));
    CHECK_EQ(fixture.compiler().runs, 1);
    CHECK_THROWS(ShardingError, std::rethrow_exception(run().error),
                 "failed while it wrote results over what it reads: out of order");
  }
}

}  // namespace spmdx
