// SPDX-License-Identifier: Apache-2.0
// Computing anew instead of holding: what is built, what it is read by, and what is chosen under a limit.
#include <algorithm>
#include <map>
#include <random>

#include "check.h"
#include "graph/text.h"
#include "passes/memory/drops.h"
#include "passes/memory/peak.h"
#include "passes/passes.h"

using namespace spmdx;

namespace {

// As many layers as wanted: forward values, which the backward pass reads in turn.
std::string layers(int count) {
  std::string nodes;
  int next = 2 + count;
  std::vector<int> products, values = {0};
  const auto node = [&](int phase, const std::string& what) {
    nodes += "%" + std::to_string(next) + " : f32[64, 64] = " + what + " phase " + std::to_string(phase) + "\n";
    return next++;
  };
  const auto of = [](int value) { return "%" + std::to_string(value); };
  std::string inputs = "%1 = input f32[64, 64]\n";
  for (int k = 0; k < count; ++k) inputs += of(2 + k) + " = input f32[64, 64] state\n";
  int x = 1;
  for (int k = 0; k < count; ++k) {
    products.push_back(node(1, "aten.mm(" + of(x) + ", " + of(2 + k) + ")"));
    x = node(1, "aten.tanh(" + of(products.back()) + ")");
    values.push_back(x);
  }
  int g = node(2, "aten.exp(" + of(x) + ")");
  for (int k = count; k-- > 0;) {
    g = node(2, "aten.tanh_backward(" + of(g) + ", " + of(values[static_cast<size_t>(k) + 1]) + ")");
    const int wide = node(2, "aten.mul.Tensor(" + of(g) + ", " + of(products[static_cast<size_t>(k)]) + ")");
    g = node(2, "aten.mm(" + of(wide) + ", " + of(2 + k) + ")");
  }
  return inputs + nodes + "return " + of(g) + "\n";
}

Graph compiled(const std::string& text, int64_t limit, bool recomputes = true) {
  static const CompileOptions as_ever;
  CompileOptions options = as_ever;
  options.memory_limit = limit;
  options.recomputes = recomputes;
  return compile(parse_graph(text), options);
}

size_t anew(const Graph& graph) {
  return static_cast<size_t>(
      std::count_if(graph.nodes.begin(), graph.nodes.end(), [](const Node& n) { return n.recorded.by_plan; }));
}

// What each output is computed from.
std::vector<uint64_t> meanings(const Graph& graph) {
  std::vector<uint64_t> of(graph.values.size(), 0), outputs;
  for (size_t i = 0; i < graph.inputs.size(); ++i) of[graph.inputs[i].value] = i + 1;
  for (const Node& node : graph.nodes) {
    uint64_t h = node.call->hash;
    for (ValueId value : node.inputs) h = hash_combine(h, of[value]);
    for (ValueId r = 0; r < node.call->outputs.size(); ++r) of[node.output + r] = hash_combine(h, r);
  }
  for (const Output& output : graph.outputs) outputs.push_back(of[output.value]);
  return outputs;
}

// A program drawn at random: products, sums, views, parts, sorts, and more than one output.
std::string drawn(uint32_t seed) {
  std::mt19937 random(seed);
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  std::string text = "%1 = input f32[8, 8]\n%2 = input f32[8, 8] state\n";
  std::vector<int> values = {1, 2};
  int next = 3;
  const auto any = [&] { return "%" + std::to_string(values[below(2) ? below(values.size()) : values.size() - 1]); };
  const auto node = [&](const std::string& what) {
    values.push_back(next);
    text += "%" + std::to_string(next++) + " : f32[8, 8] = " + what + "\n";
  };
  for (size_t i = 0, size = 10 + below(40); i < size; ++i) switch (below(6)) {
      case 0:
        node("aten.mm(" + any() + ", " + any() + ")");
        break;
      case 1:
        node("aten.mul.Tensor(" + any() + ", " + any() + ")");
        break;
      case 2:
        node("aten.permute(" + any() + ", [1, 0])");
        break;
      case 3: {
        const std::string first = std::to_string(next), second = std::to_string(next + 1);
        text += "%" + first + " : f32[8, 8], %" + second + " : i64[8, 8] = aten.sort(" + any() + ", 1, false)\n";
        values.push_back(next);
        next += 2;
        break;
      }
      case 4: {
        const std::string half = "%" + std::to_string(next++);
        text += half + " : f32[4, 8] = aten.slice.Tensor(" + any() + ", 0, 0, 4, 1)\n";
        node("aten.cat([" + half + ", " + half + "], 0)");
        break;
      }
      default:
        node("aten.tanh(" + any() + ")");
    }
  text += "return %" + std::to_string(values.back()) + "\n";
  if (below(2)) text += "return %" + std::to_string(values[values.size() / 2]) + "\n";
  return text;
}

}  // namespace

TEST(a_dropped_value_is_computed_right_before_it_is_read) {
  const Graph graph = parse_graph(
      "%1 = input f32[4]\n"
      "%2 : f32[4] = aten.exp(%1)\n"
      "%3 : f32[4] = aten.tanh(%2)\n"
      "%4 : f32[4] = aten.sin(%3)\n"
      "%5 : f32[4] = aten.mul.Tensor(%4, %2)\n"
      "%6 : f32[4] = aten.mul.Tensor(%5, %3)\n"
      "return %6\n");
  Drops drops;
  drops.add(graph.nodes[0].output, 2);
  CHECK_EQ(print(drops.rebuild(graph).graph), std::string("%0 = input f32[4]\n"
                                                          "%1 : f32[4] = aten.exp(%0)\n"
                                                          "%2 : f32[4] = aten.tanh(%1)\n"
                                                          "%3 : f32[4] = aten.sin(%2)\n"
                                                          "%4 : f32[4] = aten.exp(%0) anew\n"
                                                          "%5 : f32[4] = aten.mul.Tensor(%3, %4)\n"
                                                          "%6 : f32[4] = aten.mul.Tensor(%5, %2)\n"
                                                          "return %6\n"));
  drops.add(graph.nodes[1].output, 2);  // which takes the same exp
  const Rebuilt both = drops.rebuild(graph);
  CHECK_EQ(both.graph.nodes.size(), 7u);
  CHECK(meanings(both.graph) == meanings(graph));
  drops.add(graph.nodes[0].output, 3);  // and once more
  CHECK_EQ(drops.rebuild(graph).graph.nodes.size(), 8u);
  drops.remove(graph.nodes[0].output, 2);
  drops.remove(graph.nodes[0].output, 3);
  drops.remove(graph.nodes[1].output, 2);
  CHECK(drops.empty());
}

TEST(what_is_built_says_what_it_was_made_of) {
  const Graph graph = parse_graph(
      "%1 = input f32[4]\n%2 : f32[4] = aten.exp(%1)\n%3 : f32[4] = aten.sin(%2)\n"
      "%4 : f32[4] = aten.mul.Tensor(%3, %2)\nreturn %4\n");
  Drops drops;
  drops.add(graph.nodes[0].output, 1);
  const Rebuilt rebuilt = drops.rebuild(graph);
  CHECK(rebuilt.for_node == (std::vector<NodeId>{0, 1, 2, 2}));
  const Node& again = rebuilt.graph.nodes[2];
  CHECK(again.recorded.again && again.recorded.by_plan);
  CHECK_EQ(rebuilt.value_of[again.output], graph.nodes[0].output);
}

TEST(plans_fit_under_a_limit_and_mean_the_same) {
  const std::string text = layers(12);
  const Graph whole = compiled(text, kNoLimit);
  const int64_t peak = predict_peak_bytes(whole).bytes, tensor = 64 * 64 * 4, inputs = 13 * tensor;
  CHECK_EQ(anew(whole), 0u);
  int64_t before = 0;
  for (const int64_t activations : {22, 18, 14, 10, 7}) {
    const Graph made = compiled(text, inputs + activations * tensor);
    CHECK(predict_peak_bytes(made).bytes <= inputs + activations * tensor);
    CHECK(meanings(made) == meanings(whole));
    CHECK(anew(made) > 0 && static_cast<int64_t>(anew(made)) >= before);
    before = static_cast<int64_t>(anew(made));
  }
  CHECK_EQ(anew(compiled(text, peak)), 0u);
  CHECK_EQ(anew(compiled(text, peak / 2, false)), 0u);
}

TEST(what_is_cheap_is_computed_anew_first) {
  const std::string text = layers(12);
  const int64_t tensor = 64 * 64 * 4, peak = predict_peak_bytes(compiled(text, kNoLimit)).bytes;
  const Graph made = compiled(text, peak - 6 * tensor);
  std::map<std::string, int> ops;
  for (const Node& node : made.nodes)
    if (node.recorded.by_plan) ++ops[node.call->op];
  CHECK_EQ(ops["aten.mm"], 0);
  CHECK(ops["aten.tanh"] >= 6 && ops["aten.tanh"] <= 8);
}

TEST(a_limit_that_nothing_meets_leaves_a_low_plan) {
  const std::string text = layers(12);
  const int64_t tensor = 64 * 64 * 4, free = predict_peak_bytes(compiled(text, kNoLimit)).bytes;
  const Graph made = compiled(text, 14 * tensor);
  CHECK(predict_peak_bytes(made).bytes > 14 * tensor && predict_peak_bytes(made).bytes < free - 8 * tensor);
  CHECK(meanings(made) == meanings(compiled(text, kNoLimit)));
}

TEST(programs_drawn_at_random_mean_the_same_under_any_limit) {
  int made_less = 0;
  for (uint32_t seed = 0; seed < 150; ++seed) {
    const std::string text = drawn(seed);
    const Graph whole = compiled(text, kNoLimit);
    const int64_t free = predict_peak_bytes(whole).bytes;
    for (const int64_t percent : {90, 75, 60, 45}) {
      const Graph made = compiled(text, free * percent / 100);
      const int64_t peak = predict_peak_bytes(made).bytes;
      CHECK(peak <= free && meanings(made) == meanings(whole));
      CHECK_EQ(made.outputs.size(), whole.outputs.size());
      made_less += peak <= free * percent / 100;
    }
  }
  CHECK(made_less > 20);
}
