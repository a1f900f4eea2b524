// SPDX-License-Identifier: Apache-2.0
// The graph and its text: exact round trips, structural equality and hash, messages with line numbers.
#include <cmath>
#include <limits>

#include "base/error.h"
#include "check.h"
#include "graph/text.h"

using namespace spmdx;

namespace {

const std::string kText =
    "mesh(data=4, model=2)\n"
    "%0 = input \"x\" f32[64@data, 128]\n"
    "%1 = input \"w \\\"1\\\"\" f32[128, 256] !f32[128, 256@model]\n"
    "%2 : f32[] replicated = input f32[] replicated\n"
    "%3 : f32[64@data, 256@model] = aten.mm(%0, %1)\n"
    "%4 : f32[64@data, 256]{partial sum: model}, %5 : i64[3] replicated = aten.op(%3, [%0, none, %3], %2)\n"
    "%6 : f32[64, 256] = spmdx.comm.all_reduce(%4) over model bytes 448 cause \"gradient of w\"\n"
    "constrain %6 f32[64, 256@model]\n"
    "return %6 !f32[64@(data,model), 256] tied %1 donates\n"
    "return %5\n";

std::string reprinted(const std::string& text) { return print(parse_graph(text)); }

Graph one_node(std::vector<Arg> args, uint32_t num_params = 0, uint32_t param = 0, SourceId source = 0) {
  Graph graph;
  const ValueId x = graph.add_input({DType::f32, {4}}, "x");
  args.insert(args.begin(), TensorArg{0});
  const TensorType type{DType::f32, {4}};
  Call call{.op = "aten.op", .args = std::move(args), .inputs = {type}, .outputs = {type}, .num_params = num_params};
  const ValueId y = graph.add_node(seal(std::move(call)), {x}, source, param);
  graph.outputs.push_back({.value = y});
  return graph;
}

void check_round_trip(const Graph& graph) {
  const Graph again = parse_graph(print(graph));
  CHECK_EQ(print(again), print(graph));
  CHECK(same(again, graph));
  CHECK_EQ(structural_hash(again), structural_hash(graph));
}

}  // namespace

TEST(graph_text_round_trips) {
  CHECK_EQ(reprinted(kText), kText);
  CHECK(same(parse_graph(kText), parse_graph(kText)));
  CHECK_EQ(reprinted("  // nothing\n\n"), "");
  CHECK_EQ(reprinted("%0 = input f32[2] // a comment\nreturn %0"), "%0 = input f32[2]\nreturn %0\n");
}

TEST(graph_text_keeps_device_ids_and_axes_of_size_one) {
  const std::string text = "mesh(a=2, b=1) ids [3, 1]\n%0 = input f32[4@a]\n";
  CHECK_EQ(reprinted(text), text);
  CHECK_EQ(parse_graph(text).mesh->device_ids(), (std::vector<int64_t>{3, 1}));
}

TEST(graph_text_tells_undecided_from_replicated) {
  const Graph graph =
      parse_graph("mesh(a=2)\n%0 = input f32[4]\n%1 = input f32[4] replicated\n%2 = input f32[4] !f32[4]\n");
  CHECK(graph.inputs[0].physical == nullptr);
  CHECK(graph.inputs[1].physical == replicated(graph.mesh, 1));
  CHECK(graph.inputs[2].annotation == replicated(graph.mesh, 1));
  CHECK_EQ(print(parse_graph(print(graph))), print(graph));
}

TEST(graph_text_round_trips_every_kind_of_argument) {
  const double inf = std::numeric_limits<double>::infinity();
  check_round_trip(one_node({std::monostate{}, true, int64_t{-7}, 2.0, -0.0, 1e-30, 0.1, inf, -inf, std::nan("")}));
  check_round_trip(
      one_node({std::vector<int64_t>{1, -2}, std::vector<double>{1, 0.5, inf}, std::vector<bool>{true, false}}));
  check_round_trip(one_node({std::vector<int64_t>{}, std::vector<double>{}, std::vector<bool>{}, TensorListArg{}}));
  check_round_trip(
      one_node({std::string("a \"b\" \\ // \n c"), std::string(), DType::bf16, OpaqueArg{"memory_format:2"}}));
  check_round_trip(one_node({RealParam{0}, IntParam{1}}, 2, 5));
  check_round_trip(one_node({RealParam{1}}, 3, 5));
  check_round_trip(one_node({TensorListArg{{kNone, kNone}}}));
}

TEST(graph_text_keeps_wrapped_numbers) {
  Graph graph;
  graph.add_input({DType::f64, {}, true}, "lr");
  check_round_trip(graph);
  CHECK(parse_graph(print(graph)).values[0].type.wrapped_number);
}

TEST(graph_text_shows_sources_as_comments) {
  const Graph graph = one_node({}, 0, 0, 7);
  const auto source = [](SourceId id) { return "train.py:" + std::to_string(id); };
  CHECK_EQ(print(graph.nodes[0], graph, source), "%1 : f32[4] = aten.op(%0)  // train.py:7");
}

TEST(graph_hash_ignores_sources_and_names) {
  Graph a = one_node({RealParam{0}}, 1, 0, 1), b = one_node({RealParam{0}}, 1, 0, 2);
  b.inputs[0].name = "another";
  b.inputs[0].source = b.outputs[0].source = 9;
  CHECK(same(a, b));
  CHECK_EQ(structural_hash(a), structural_hash(b));
}

TEST(graph_hash_sees_every_difference) {
  const Graph plain = parse_graph(kText);
  const auto differs = [&](const std::string& from, const std::string& to) {
    std::string text = kText;
    text.replace(text.find(from), from.size(), to);
    const Graph other = parse_graph(text);
    CHECK(!same(plain, other));
    CHECK(structural_hash(plain) != structural_hash(other));
  };
  differs("aten.mm", "aten.nn");
  differs("(%0, %1)", "(%1, %0)");
  differs("64@data, 128]\n", "64, 128@data]\n");
  differs("128, 256] !f32[128, 256@model]", "128, 256] !f32[128@model, 256]");
  differs("tied %1", "tied %0");
  differs(" donates", "");
  differs("constrain %6 f32[64, 256@model]", "constrain %6 f32[64@model, 256]");
  differs("return %5", "return %4");
  differs("model=2)", "model=2) ids [0, 1, 2, 3, 4, 5, 7, 6]");
  CHECK(!same(one_node({int64_t{1}}), one_node({1.0})));
  CHECK(!same(one_node({0.0}), one_node({-0.0})));
  CHECK(same(one_node({std::nan("")}), one_node({std::nan("")})));
  CHECK(!same(one_node({RealParam{0}}, 1, 0), one_node({RealParam{0}}, 1, 1)));
}

TEST(graph_text_errors_name_the_line) {
  CHECK_THROWS(ShardingError, parse_graph("%0 = input f32[2]\n%1 : f32[2] = aten.neg(%7)\n"),
               "line 2: %7 is used before");
  CHECK_THROWS(ShardingError, parse_graph("%1 : f32[2] = aten.neg(%1)\n"), "line 1: %1 is used before");
  CHECK_THROWS(ShardingError, parse_graph("%0 = input f32[2]\n%0 = input f32[2]"), "line 2: %0 is defined twice");
  CHECK_THROWS(ShardingError, parse_graph("%0 = inputs f32[2]"), "Expected 'input'");
  CHECK_THROWS(ShardingError, parse_graph("%0 = input f32[2@a]"), "line 1: ");
  CHECK_THROWS(ShardingError, parse_graph("%0 = input f33[2]"), "line 1: ");
  CHECK_THROWS(ShardingError, parse_graph("%0 = input f32[9000000000, 9000000000]"), "too large");
  CHECK_THROWS(ShardingError, parse_graph("%4000000 = input f32[2]"), "too large");
  CHECK_THROWS(ShardingError, parse_graph("%99999999999 = input f32[2]"), "Expected a number that fits");
  CHECK_THROWS(ShardingError, parse_graph("mesh(a=2)\nmesh(a=2)"), "second mesh");
  CHECK_THROWS(ShardingError, parse_graph("mesh(a=0)"), "Expected at least 1");
  CHECK_THROWS(ShardingError, parse_graph("mesh(a=99999999, b=99999999)"), "2^20 devices");
  CHECK_THROWS(ShardingError, parse_graph("%0 = input f32[2] !f32[2]"), "without a mesh");
  CHECK_THROWS(ShardingError, parse_graph("mesh(a=2)\n%0 = input f32[2] !f32[3]"), "Expected f32[2]");
  CHECK_THROWS(ShardingError, parse_graph("%0 = input f32[2]\n%1 : f32[], %3 : f32[] = aten.a(%0)"), "Expected %2");
  CHECK_THROWS(ShardingError, parse_graph("%0 = input f32[2]\nreturn %0 tied"), "Expected '%'");
  CHECK_THROWS(ShardingError, parse_graph("%0 = input \"x f32[2]"), "Expected '\"'");
  CHECK_THROWS(ShardingError, parse_graph("%0 : f32[2] = aten.a(real#1, real#3)"), "parameter #3");
}

TEST(graph_users_are_in_program_order_and_counted_once) {
  const Graph graph =
      parse_graph("%0 = input f32[2]\n%1 : f32[2] = aten.mul(%0, %0)\n%2 : f32[2] = aten.add(%0, %1)\n");
  const auto uses = users(graph);
  CHECK_EQ(uses[0], (std::vector<NodeId>{0, 1}));
  CHECK_EQ(uses[1], (std::vector<NodeId>{1}));
  CHECK(uses[2].empty());
}

TEST(graph_op_names) {
  CHECK_EQ(base_name("aten.add.Tensor"), "aten.add");
  CHECK_EQ(base_name("aten.mm"), "aten.mm");
  CHECK_EQ(base_name("spmdx.comm.all_gather"), "spmdx.comm.all_gather");
  CHECK_EQ(collective_op(Collective::all_gather), "spmdx.comm.all_gather");
  for (const CollectiveRow& row : all_collectives()) {
    Call call;
    call.op = collective_op(row.kind);
    const Node node{.call = seal(std::move(call)), .inputs = {}, .recorded = {}, .cause = {}};
    CHECK(is_collective(node));
    CHECK(collective_kind(node) == row.kind);
  }
}
