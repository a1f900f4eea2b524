// SPDX-License-Identifier: Apache-2.0
// Starts: which of them a plan leaves open, and that graphs which differ in nothing else are the same.
#include "graph/starts.h"

#include "check.h"
#include "graph/parts.h"
#include "graph/text.h"
#include "passes/free_starts.h"
#include "passes/passes.h"
#include "rules/known_rules.h"
#include "rules/lookup.h"
#include "rules/rule_text.h"

using namespace spmdx;

namespace {

Graph slices(const std::string& type, int64_t a, int64_t b, int64_t length = 4) {
  const auto slice = [&](int64_t start) {
    return "f32[" + std::to_string(length) + ", 8] = aten.slice.Tensor(%0, 0, " + std::to_string(start) + ", " +
           std::to_string(start + length) + ", 1)\n";
  };
  return parse_graph("mesh(x=2)\n%0 = input f32[64, 8] !f32" + type + "\n%1 : " + slice(a) + "%2 : " + slice(b) +
                     "%3 : f32[" + std::to_string(length) + ", 8] = aten.add.Tensor(%1, %2, 1)\nreturn %3\n");
}

struct Made {
  StartsOfPlan starts;
  Graph graph;
};

Made planned(const Graph& traced) {
  Made made{{}, compile(traced, {})};
  made.starts = free_starts(traced, made.graph);
  return made;
}

}  // namespace

TEST(graphs_that_differ_in_starts_are_the_same) {
  const Graph a = slices("[64, 8]", 0, 8), b = slices("[64, 8]", 5, 5);
  CHECK(same(a, b));
  CHECK_EQ(structural_hash(a), structural_hash(b));
  CHECK(starts_of(b) == std::vector<int64_t>({5, 5}));
  CHECK_EQ(print(with_starts(a, {5, 5})), print(b));
  CHECK(!same(a, slices("[64, 8]", 0, 8, 3)));
  CHECK(structural_hash(a) != structural_hash(slices("[64, 8]", 0, 8, 3)));
}

TEST(a_start_outside_of_the_tensor_is_no_start) {
  const auto count = [](const std::string& call) {
    return starts_of(parse_graph("%0 = input f32[8]\n%1 = input f32[2]\n%2 : f32[8] = " + call + "\nreturn %2\n"))
        .size();
  };
  CHECK_EQ(count("aten.slice_scatter(%0, %1, 0, 3, 5, 1)"), 1U);
  CHECK_EQ(count("aten.slice_scatter(%0, %1, 0, -3, -1, 1)"), 0U);
  CHECK_EQ(count("aten.slice_scatter(%0, %1, 0, 6, 9223372036854775807, 1)"), 0U);
  CHECK_EQ(count("aten.slice_scatter(%0, %1, 0, none, 2, 1)"), 0U);
  CHECK_EQ(count("aten.slice_scatter(%0, %1, 1, 0, 2, 1)"), 0U);
  CHECK_EQ(count("spmdx.write_range(%0, %1, [0], [3], [1])"), 1U);
}

TEST(starts_in_a_whole_dim_and_of_few_rows_of_a_cut_one_are_open) {
  for (const char* type : {"[64, 8@x]", "[64@x, 8]"}) {
    const Made made = planned(slices(type, 3, 9));
    CHECK(made.starts.open == std::vector<bool>({true, true}));
    CHECK(made.starts.equal.empty());
    CHECK_EQ(made.graph.num_params, 2U);
    CHECK(made.starts.fit({60, 0}));
    CHECK_EQ(print(parse_graph(print(made.graph))), print(made.graph));
  }
}

TEST(starts_of_many_rows_of_a_cut_dim_are_given) {
  const Made made = planned(slices("[64@x, 8]", 3, 9, 40));
  CHECK(made.starts.open == std::vector<bool>({false, false}));
  CHECK(made.starts.fit({3, 9}));
  CHECK(!made.starts.fit({4, 9}));
}

TEST(equal_parts_are_read_once_and_stay_equal) {
  const Made made = planned(slices("[64, 8@x]", 3, 3));
  CHECK(made.starts.open == std::vector<bool>({true, true}));
  CHECK(made.starts.fit({7, 7}));
  CHECK(!made.starts.fit({7, 8}));
}

// A plan that is made for other starts has the same calls.
TEST(a_plan_with_open_starts_is_that_of_any_starts) {
  for (const char* type : {"[64, 8@x]", "[64@x, 8]", "[64, 8]"}) {
    const std::string text = print(planned(slices(type, 3, 9)).graph);
    for (const auto& [a, b] : std::vector<std::pair<int64_t, int64_t>>{{0, 60}, {31, 30}, {28, 32}})
      CHECK_EQ(print(planned(slices(type, a, b)).graph), text);
  }
}

// Each rule is made for a call when no other rule is known.
TEST(a_rule_does_not_depend_on_starts) {
  struct Row {
    std::string inputs, results, before, after;
    int64_t length = 0;  // to its end; 0: it has none
  };
  const std::string x = "f32[64, 8]", part = "f32[4, 8]";
  const std::vector<Row> rows = {
      {x, part, "aten.slice.Tensor(%0, 0, ", ", 1)", 4},
      {x, "f32[20, 8]", "aten.slice.Tensor(%0, 0, ", ", 1)", 20},
      {part, x, "aten.slice_backward(%0, [64, 8], 0, ", ", 1)", 4},
      {"f32[20, 8]", x, "aten.slice_backward(%0, [64, 8], 0, ", ", 1)", 20},
      {x + "; " + part, x, "aten.slice_scatter(%0, %1, 0, ", ", 1)", 4},
      {x, "f32[8]", "aten.select.int(%0, 0, ", ")"},
      {"f32[8]", x, "aten.select_backward(%0, [64, 8], 0, ", ")"},
      {x + "; f32[8]", x, "aten.select_scatter(%0, %1, 0, ", ")"},
      {x, part, "spmdx.read_range(%0, 0, ", ", 1)"},
      {part, x, "spmdx.place_range(%0, 0, ", ", 1)"},
      {x + "; " + part, x, "spmdx.write_range(%0, %1, [0], [", "], [1])"},
      {"", "i64[20]", "aten.arange.start(", ", none, none, none, none)", 20},
      {"", x, "aten.full([64, 8], 1", ", none, none, none, none)"},
      {x, "b8[64, 8]", "aten.gt.Scalar(%0, ", ")"},
      {x + "; b8[64, 8]", x, "aten.masked_fill.Scalar(%0, %1, 1", ")"},
  };
  for (const Row& row : rows) {
    const auto fresh = [&](int64_t start) {
      rules::forget_rules();
      const std::string end = row.length ? ", " + std::to_string(start + row.length) : "";
      return test::rule_of(row.inputs, row.results, row.before + std::to_string(start) + end + row.after);
    };
    for (const int64_t start : {1, 3, 16, 31, 44}) CHECK_EQ(fresh(start), fresh(0));
  }
}

TEST(calls_that_differ_in_starts_have_one_rule) {
  const Graph a = slices("[64, 8]", 0, 8);
  const auto rule = [&](NodeId node) { return rule_for(a.nodes[node].call); };
  CHECK(a.nodes[0].call != a.nodes[1].call && rule(0) == rule(1));
}

TEST(what_an_op_touches_of_a_large_operand_is_its_part) {
  const auto touched = [](const std::string& type, const std::string& call) {
    const Graph graph = parse_graph("%0 = input f32[1000, 4]\n%1 = input f32[2, 4]\n%2 = input i64[2]\n%3 : f32" +
                                    type + " = " + call + "\nreturn %3\n");
    return touched_bytes(*graph.nodes[0].call);
  };
  CHECK_EQ(touched("[1000, 4]", "aten.index_add(%0, 0, %2, %1, 1)"), 2 * (32 + 16));  // what it reads, and writes
  CHECK_EQ(touched("[1000, 4]", "aten.slice_scatter(%0, %1, 0, 3, 5, 1)"), 2 * 32);
  CHECK_EQ(touched("[1000, 4]", "aten.index_fill.int_Scalar(%0, 0, %2, 1)"), 2 * 16);
  CHECK_EQ(touched("[2, 4]", "aten.index_select(%0, 0, %2)"), 16 + 2 * 32);
  CHECK_EQ(touched("[4]", "aten.select.int(%0, 0, 3)"), 2 * 16);
  CHECK_EQ(touched("[1000, 4]", "aten.relu(%0)"), 2 * 16'000);
  CHECK_EQ(touched("[1000, 4]", "aten.add.Tensor(%0, %0, 1)"), 3 * 16'000);
}
