// SPDX-License-Identifier: Apache-2.0
// Steps over devices of several kinds: where their parts run, and what is sent.
#include "check.h"
#include "graph/places.h"
#include "graph/text.h"
#include "passes/passes.h"
#include "passes/report/placement.h"

using namespace spmdx;

namespace {

Hardware slow(double rate, int64_t memory = 0) {
  return {.name = "slow",
          .memory_bytes = memory,
          .memory_bytes_per_second = rate,
          .flops_per_second = {{DType::f32, rate}}};
}

// Two devices.
CompileOptions two_kinds(DeviceKind first, DeviceKind second) {
  CompileOptions options;
  options.kinds = {{std::move(first), std::move(second)}, {0, 1}, "kind"};
  return options;
}

// Two products, and their sum.
const std::string kBranches =
    "mesh(kind=2)\n"
    "kinds \"kind\"\n"
    "%0 : f32[64, 64] = input f32[64, 64] !f32[64, 64]\n"
    "%1 : f32[64, 64] = aten.mm(%0, %0)\n"
    "%2 : f32[64, 64] = aten.mul.Tensor(%0, %0)\n"
    "%3 : f32[64, 64] = aten.exp(%2)\n"
    "%4 : f32[64, 64] = aten.add.Tensor(%1, %3, 1)\n"
    "return %4\n";

PlacedSummary summary_of(const std::string& text, const CompileOptions& options) {
  return summarise_placement(*compile(parse_graph(text), options, nullptr).placed);
}

const Node& node_of(const Graph& graph, const std::string& op) {
  for (const Node& node : graph.nodes)
    if (node.call->op == op) return node;
  throw InternalError("there is no " + op);
}

}  // namespace

TEST(kinds_are_part_of_the_text_and_of_the_structure) {
  const Graph graph = parse_graph(kBranches);
  CHECK_EQ(graph.kinds, "kind");
  CHECK_EQ(print(parse_graph(print(graph))), print(graph));
  Graph other = graph;
  other.kinds.clear();
  CHECK_EQ(same(graph, other), false);
  CHECK_EQ(structural_hash(graph) == structural_hash(other), false);
  CHECK_EQ(stage_axis(graph), 0);
}

TEST(each_op_runs_where_it_can) {
  const CompileOptions options =
      two_kinds({"products", slow(1e3), false, {"aten.mm"}},
                {"others", slow(1e3), false, {"aten.mul.Tensor", "aten.exp", "aten.add.Tensor"}});
  const Graph plan = compile(parse_graph(kBranches), options);
  CHECK_EQ(place_of(plan, node_of(plan, "aten.mm")).stage, 0);
  CHECK_EQ(place_of(plan, node_of(plan, "aten.exp")).stage, 1);
  CHECK_EQ(place_of(plan, node_of(plan, "aten.add.Tensor")).stage, 1);
  const PlacedSummary summary = summary_of(kBranches, options);
  CHECK_EQ(summary.sends.size(), 1u);
  CHECK_EQ(summary.sends[0].bytes, 64 * 64 * 4);
  CHECK_EQ(summary.alone_ns, (std::vector<int64_t>{-1, -1}));
  CHECK_EQ(summary.kinds, (std::vector<std::string>{"products", "others"}));
}

TEST(each_dtype_runs_where_it_is_taken) {
  const std::set<DType> floats = {DType::f32, DType::b8};
  const CompileOptions options = two_kinds({"all", slow(1e6), false, {}}, {"floats", slow(1e9), false, {}, floats});
  CHECK_EQ(summary_of(kBranches, options).alone_ns[1] > 0, true);
  std::string doubles = kBranches;
  for (size_t at = doubles.find("f32"); at != std::string::npos; at = doubles.find("f32"))
    doubles.replace(at, 3, "f64");
  const PlacedSummary summary = summary_of(doubles, options);
  CHECK_EQ(summary.alone_ns[1], -1);
  for (const PlacedSegment& segment : summary.segments) CHECK_EQ(segment.device, 0u);
}

// The second device is the faster one, and reads what lies on the first.
TEST(a_device_alone_is_sent_what_lies_elsewhere) {
  const CompileOptions options = two_kinds({"a", slow(1e6), false, {}}, {"b", slow(1e7), false, {}});
  const auto with_input = [](const std::string& place) {
    return "mesh(kind=2)\nkinds \"kind\"\n%0 : f32[64, 64] = input f32[64, 64] on " + place +
           "\n%1 : f32[64, 64] = aten.mm(%0, %0)\nreturn %1\n";
  };
  const PlacedSummary there = summary_of(with_input("kind=1"), options);
  const PlacedSummary sent = summary_of(with_input("kind=0"), options);
  CHECK_EQ(there.ns, there.alone_ns[1]);
  CHECK_EQ(sent.ns, sent.alone_ns[1]);
  CHECK_EQ(sent.alone_ns[1] > there.alone_ns[1], true);
  CHECK_EQ(sent.alone_ns[0] < there.alone_ns[0], true);
  CHECK_EQ(sent.least_ns <= sent.alone_ns[1], true);
}

TEST(no_device_is_alone_with_what_its_memory_does_not_hold) {
  const CompileOptions options = two_kinds({"a", slow(1e9, 4096), false, {}}, {"b", slow(1e9), false, {}});
  const std::vector<int64_t> alone = summary_of(kBranches, options).alone_ns;
  CHECK_EQ(alone[0], -1);
  CHECK_EQ(alone[1] > 0, true);
}

TEST(a_step_is_not_spread_where_sends_take_longer) {
  const CompileOptions options = two_kinds({"a", slow(1e12), false, {}}, {"b", slow(1e12), false, {}});
  const PlacedSummary summary = summary_of(kBranches, options);
  CHECK_EQ(summary.sends.size(), 0u);
  CHECK_EQ(summary.segments.size(), 1u);
  CHECK_EQ(summary.ns, summary.least_ns);
}

TEST(memory_of_its_own_is_reached_through_hosts) {
  const std::set<std::string> others = {"aten.mul.Tensor", "aten.exp", "aten.add.Tensor"};
  CompileOptions options = two_kinds({"a", slow(1e3), false, {"aten.mm"}}, {"b", slow(1e3), false, others});
  const int64_t near = summary_of(kBranches, options).ns;
  options.kinds.kinds[0].own_memory = true;
  options.kinds.kinds[0].hardware.host_bytes_per_second = 1e3;
  const int64_t far = summary_of(kBranches, options).ns;
  CHECK_EQ(far - near, 64 * 64 * 4 * 1'000'000LL);  // 1 ms a byte
}

TEST(what_cannot_be_placed_is_refused) {
  const auto refused = [](const CompileOptions& options, const std::string& text = kBranches) {
    try {
      compile(parse_graph(text), options);
    } catch (const ShardingError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const std::string nowhere = refused(two_kinds({"a", {}, false, {"aten.mm"}}, {"b", {}, false, {"aten.exp"}}));
  CHECK_EQ(nowhere.starts_with("no device along axis 'kind' runs aten.mul.Tensor; they are of kinds a, b."), true);
  const std::string dtype = refused(two_kinds({"a", {}, false, {}, {DType::f64}}, {"b", {}, false, {"aten.exp"}}));
  CHECK_EQ(dtype.starts_with("no device along axis 'kind' runs aten.mm of f32; they are of kinds a, b."), true);
  const std::string full = refused(two_kinds({"a", slow(1e9, 4096), false, {}}, {"b", slow(1e9, 4096), false, {}}));
  CHECK_EQ(full.find("of kind a, lack ") != std::string::npos || full.find("of kind b, lack ") != std::string::npos,
           true);
  CompileOptions mixed = two_kinds({"a", {}, false, {}}, {"b", {}, false, {}});
  mixed.kinds.of_device = {0, 1, 0, 1};
  const std::string wide = "mesh(kind=2, data=2)" + kBranches.substr(kBranches.find('\n'));
  CHECK_EQ(refused(mixed, wide).starts_with("devices at kind=0 are of kinds a and b."), true);
  mixed.kinds.of_device = {0};
  CHECK_EQ(refused(mixed, wide).starts_with("device 1 of Mesh(kind=2, data=2) is of no kind"), true);
}
