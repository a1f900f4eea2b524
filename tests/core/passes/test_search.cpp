// SPDX-License-Identifier: Apache-2.0
// The search on small programs whose cheapest plan can be computed by hand.
#include "check.h"
#include "graph/text.h"
#include "passes/passes.h"
#include "passes/search/assignment.h"
#include "rules/lookup.h"

using namespace spmdx;

namespace {

Graph propagated(const std::string& text, const CompileOptions& options = {}) {
  Graph graph = parse_graph(text);
  propagate(graph, options);
  return graph;
}

int64_t searched_ns(const std::string& text, const CompileOptions& options = {}) {
  return decide(propagated(text, options), options).total_ns;
}

// The first answer alone.
int64_t greedy_ns(const std::string& text) {
  const CompileOptions options;
  const Graph graph = propagated(text);
  Assignment assignment(graph, options, std::vector<bool>(graph.values.size(), false));
  choose_greedily(assignment);
  return assignment.total();
}

// ---- times of the topology "in-process" ----

// A start, so many messages in turn, and half a nanosecond for a byte that is received.
constexpr int64_t wire(int64_t messages, int64_t bytes) { return 5'000 + 50 * messages + bytes / 2; }
// Of so many rows, columns and summands on one device: 50 ps an operation, and a product counts twenty times.
constexpr int64_t product(int64_t m, int64_t n, int64_t k) { return 20 * 2 * m * n * k * 50 / 1000; }
// What is read and written on one device, at 100 ps a byte; it counts a quarter.
constexpr int64_t touched(int64_t bytes) { return bytes / 40; }
constexpr int64_t kMiB = 1 << 20;

// With nine ops more that have nothing to do with it, so that nodes no longer try what no tensor suggests.
std::string crowded(std::string program) {
  const size_t end = program.rfind("return");
  std::string more = "%100 = input f32[2048@model]\n";
  for (int i = 101; i < 110; ++i)
    more += "%" + std::to_string(i) + " : f32[2048] = aten.relu(%" + std::to_string(i - 1) + ")\n";
  program.insert(end, more);
  return program + "return %109\n";
}

// What the nine take.
int64_t crowd_ns(int64_t devices) { return 9 * touched(2 * 2048 / devices * 4); }

// By the sizes of the factors that strategies cut.
std::vector<int64_t> sizes_cut(const OpContext& op, const std::vector<std::vector<ShardingRef>>& hints) {
  std::vector<int64_t> sizes;
  for (const Strategy& strategy : candidates(op, hints))
    for (size_t f = 0; f < strategy.cuts.size(); ++f)
      if (!strategy.cuts[f].empty()) sizes.push_back(op.rule->factors[f].size);
  return sizes;
}

// What the inputs' layouts suggest to the first node.
std::vector<int64_t> suggested(const std::string& text) {
  const Graph graph = parse_graph(text);
  const OpRuleRef rule = rule_for(graph.nodes[0].call);
  const OpContext op{graph.mesh, graph.nodes[0].call.get(), rule.get(), false};
  std::vector<std::vector<ShardingRef>> hints(op.num_tensors());
  for (size_t i = 0; i < graph.inputs.size(); ++i)
    if (graph.inputs[i].physical) hints[i].push_back(graph.inputs[i].physical);
  return sizes_cut(op, hints);
}

}  // namespace

// Columns of w1, rows of w2: each device has 64 of 256 hidden units. gelu reads and writes 128 · 64 numbers. The result
// of 128 · 64 numbers is partial; its all_reduce over 4 devices receives 2 · 3/4 of it, in 2 rounds.
TEST(two_layers_cut_across_and_along_need_one_sum) {
  const std::string program =
      "mesh(model=4)\n"
      "%0 = input f32[128, 64] !f32[128, 64]\n"
      "%1 = input f32[64, 256@model]\n"
      "%2 = input f32[256@model, 64]\n"
      "%3 : f32[128, 256] = aten.mm(%0, %1)\n"
      "%4 : f32[128, 256] = aten.gelu(%3, \"none\")\n"
      "%5 : f32[128, 64] = aten.mm(%4, %2)\n"
      "return %5 !f32[128, 64]\n";
  const int64_t work = product(128, 64, 64) + touched(2 * 128 * 64 * 4) + product(128, 64, 64);
  CHECK_EQ(searched_ns(program), work + wire(2, 2 * 128 * 64 * 4 * 3 / 4));
}

// Both products sum over 256 numbers on either device. Their sums are added as they are (3 · 1 MB touched), and 1 MB is
// reduced once: 1 MB received. Reduced one by one that would be 2 MB.
TEST(two_partial_sums_are_reduced_once) {
  const std::string program =
      "mesh(model=2)\n"
      "%0 = input f32[512, 512@model]\n"
      "%1 = input f32[512@model, 512]\n"
      "%2 = input f32[512, 512@model]\n"
      "%3 = input f32[512@model, 512]\n"
      "%4 : f32[512, 512] = aten.mm(%0, %1)\n"
      "%5 : f32[512, 512] = aten.mm(%2, %3)\n"
      "%6 : f32[512, 512] = aten.add.Tensor(%4, %5, 1)\n"
      "return %6 !f32[512, 512]\n";
  const int64_t work = 2 * product(512, 512, 256) + touched(3 * kMiB);
  CHECK_EQ(searched_ns(program), work + wire(1, kMiB));
}

// a is cut along k, b is not. Making the product partial asks for b's rows (free) and an all_reduce of 32 MB; gathering
// a brings 12 MB and every device multiplies everything. An all_to_all brings 3/4 of a device's 4 MB, 3 messages, and
// each has a quarter of the rows.
TEST(a_cut_that_would_be_summed_over_moves_to_the_rows) {
  const std::string program =
      "mesh(model=4)\n"
      "%0 = input f32[4096, 1024@model]\n"
      "%1 = input f32[1024, 2048] !f32[1024, 2048]\n"
      "%2 : f32[4096, 2048] = aten.mm(%0, %1)\n"
      "return %2\n";
  const int64_t least = product(1024, 2048, 1024) + wire(3, 3 * kMiB);
  CHECK_EQ(searched_ns(program), least);
  CHECK_EQ(searched_ns(crowded(program)), least + crowd_ns(4));
  CHECK_EQ(suggested(program), (std::vector<int64_t>{1024, 4096}));
}

// Eight products of 256 · 256 · 256, cut along what they sum over. Each operand has 1 MB on a device; all_to_alls to 4
// products on each device bring half of either. The sum of 2 MB would receive 2 MB.
TEST(operands_that_are_cut_alike_agree_on_the_batch) {
  const std::string program =
      "mesh(model=2)\n"
      "%0 = input f32[8, 256, 256@model]\n"
      "%1 = input f32[8, 256@model, 256]\n"
      "%2 : f32[8, 256, 256] = aten.bmm(%0, %1)\n"
      "return %2\n";
  const int64_t least = 4 * product(256, 256, 256) + 2 * wire(1, kMiB / 2);
  CHECK_EQ(searched_ns(program), least);
  CHECK_EQ(searched_ns(crowded(program)), least + crowd_ns(2));
  CHECK_EQ(suggested("mesh(model=2)\n"
                     "%0 = input f32[8, 64, 32@model]\n"
                     "%1 = input f32[8, 32@model, 16]\n"
                     "%2 : f32[8, 64, 16] = aten.bmm(%0, %1)\n"),
           (std::vector<int64_t>{32, 8}));
}

// x is cut by rows, the user wants columns of what nine ops make of it in double precision. The exchange costs half
// before the cast, and between any two of the nine the same: no node gains by itself. Per device 256 · 512 numbers.
TEST(a_chain_carries_a_layout_over_ops_that_gain_nothing) {
  std::string program =
      "mesh(a=2)\n"
      "%0 = input f32[512@a, 512]\n"
      "%1 : f64[512, 512] = aten._to_copy(%0, dtype:f64, none, none, none, false, none)\n";
  for (int i = 2; i <= 10; ++i)
    program += "%" + std::to_string(i) + " : f64[512, 512] = aten.relu(%" + std::to_string(i - 1) + ")\n";
  program += "return %10 !f64[512, 512@a]\n";
  const int64_t numbers = 256 * 512;
  const int64_t work = touched(numbers * (4 + 8)) + 9 * touched(numbers * (8 + 8));
  CHECK_EQ(searched_ns(program), work + wire(1, numbers * 4 / 2));
  CHECK_EQ(greedy_ns(program), work + wire(1, numbers * 8 / 2));
}

// Both operands are cut along what is summed over, so no tensor suggests rows. An all_to_all of a (half of 1 MB) and a
// gather of b (1 MB) receive 1.5 MB; the all_reduce of 4 MB would receive 4.
TEST(a_shift_finds_a_layout_that_no_tensor_has) {
  const std::string program =
      "mesh(model=2)\n"
      "%0 = input f32[1024, 512@model]\n"
      "%1 = input f32[512@model, 1024]\n"
      "%2 : f32[1024, 1024] = aten.mm(%0, %1)\n"
      "return %2\n";
  const int64_t work = product(512, 1024, 512);
  CHECK_EQ(searched_ns(program), work + wire(1, kMiB / 2) + wire(1, kMiB));
  CHECK_EQ(greedy_ns(program), work + wire(1, 4 * kMiB));
}

// Rows are sorted whole, and wanted cut by columns. There and back by all_to_all: 3 messages each, 3/4 of a device's
// 1 MB. Of 32 rows it is latency that counts: one gather of 3/4 of 4 KB in 2 rounds, and each device sorts all.
TEST(latency_decides_between_one_gather_and_two_exchanges) {
  const auto program = [](const std::string& rows) {
    return "mesh(model=4)\n%0 = input f32[" + rows + ", " + rows + "@model]\n%1 : f32[" + rows + ", " + rows +
           "], %2 : i64[" + rows + ", " + rows + "] = aten.sort(%0, 1, false)\nreturn %1 !f32[" + rows + ", " + rows +
           "@model]\n";
  };
  const auto sorted = [](int64_t rows, int64_t columns) { return touched(rows * columns * (4 + 4 + 8)); };
  CHECK_EQ(searched_ns(program("1024")), sorted(256, 1024) + 2 * wire(3, kMiB * 3 / 4));
  CHECK_EQ(searched_ns(program("32")), sorted(32, 32) + wire(2, 32 * 32 * 4 * 3 / 4));
  // 128 rows: two exchanges, but for a network with 60 µs to start, 20 a message and 0.8 ns a byte.
  CHECK_EQ(searched_ns(program("128")), sorted(32, 128) + 2 * wire(3, 32 * 128 * 4 * 3 / 4));
  CompileOptions gloo;
  gloo.topology = topology_named("gloo");
  CHECK_EQ(searched_ns(program("128"), gloo), sorted(128, 128) + 60'000 + 2 * 20'000 + 128 * 128 * 4 * 3 / 4 * 8 / 10);
}

namespace {

// Products of a batch, cut by rows, with weights of 1 MB that are stored in halves; `apart` ops between the products.
std::string layers(const std::vector<int>& weights, int apart) {
  std::string program =
      "mesh(data=2)\n"
      "%0 = input f32[8192@data, 512] !f32[8192@data, 512]\n"
      "%1 = input f32[512@data, 512] !f32[512@data, 512] state\n"
      "%2 = input f32[512@data, 512] !f32[512@data, 512] state\n";
  int last = 0, next = 3;
  const auto add = [&](const std::string& made) {
    program += "%" + std::to_string(next) + " : f32[8192, 512] = " + made + "\n";
    last = next++;
  };
  for (int weight : weights) {
    add("aten.mm(%" + std::to_string(last) + ", %" + std::to_string(weight) + ")");
    for (int i = 0; i < apart; ++i) add("aten.relu(%" + std::to_string(last) + ")");
  }
  return program + "return %" + std::to_string(last) + "\n";
}

// How many gathers of a weight a plan of these products has: half of 1 MB each, one round.
int64_t gathers(const std::vector<int>& weights, int apart, int64_t budget) {
  CompileOptions options;
  options.gather_budget = budget;
  const auto count = static_cast<int64_t>(weights.size());
  const int64_t work = count * (product(4096, 512, 512) + apart * touched(2 * 4096 * 512 * 4));
  const int64_t moves = searched_ns(layers(weights, apart), options) - work;
  CHECK_EQ(moves % wire(1, kMiB / 2), 0);
  return moves / wire(1, kMiB / 2);
}

}  // namespace

// A weight that is read again 40 ops later is gathered anew, where nothing is said; kept, if the budget has room for
// its 1 MB. Uses that are near share a copy.
TEST(a_weight_is_gathered_for_each_use_or_kept) {
  CHECK_EQ(gathers({1, 1}, 4, 0), 1);
  CHECK_EQ(gathers({1, 1}, 40, 0), 2);
  CHECK_EQ(gathers({1, 1}, 40, kMiB), 1);
  CHECK_EQ(gathers({1, 1}, 40, kMiB - 1), 2);
  CHECK_EQ(gathers({1, 1}, 40, kNoLimit), 1);
}

// The second weight is read three times, the first one twice: there is room for one, and keeping the second saves two
// gathers.
TEST(the_budget_goes_to_the_weight_that_saves_most) {
  CHECK_EQ(gathers({1, 2, 1, 2, 2}, 40, 0), 5);
  CHECK_EQ(gathers({1, 2, 1, 2, 2}, 40, kMiB), 3);
  CHECK_EQ(gathers({1, 2, 1, 2, 2}, 40, 2 * kMiB), 2);
}

// x says rows by a, w columns by b: together, then each alone. The larger leads.
TEST(what_two_tensors_suggest_is_put_together) {
  CHECK_EQ(suggested("mesh(a=2, b=2)\n"
                     "%0 = input f32[64@a, 32]\n"
                     "%1 = input f32[32, 16@b]\n"
                     "%2 : f32[64, 16] = aten.mm(%0, %1)\n"),
           (std::vector<int64_t>{64, 16, 64, 16}));
}
