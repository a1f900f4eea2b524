// SPDX-License-Identifier: Apache-2.0
// Loops of microbatches: what is planned for one is done for all, with the inputs, the parameters and the starts of
// each.
#include <algorithm>
#include <functional>
#include <map>

#include "check.h"
#include "graph/text.h"
#include "passes/free_starts.h"
#include "passes/loops/unroll.h"
#include "passes/passes.h"

using namespace spmdx;

namespace {

struct Settings {
  int microbatches = 8;
  bool sliced = false;     // the rows of each are part of one tensor, taken before all of them
  bool in_turn = false;    // or taken where they are read
  bool random = false;     // each has a seed of its own
  bool total = false;      // a sum of losses goes from each to the next
  bool from_zero = false;  // and begins with a number
  int errors = 0;          // so many other nodes of the outputs, after the backward pass, go into one more such sum
  bool listed = false;     // the user keeps the losses
  bool summed = false;     // what follows adds some of them up
  bool odd_last = false;   // the last one does something else as well
  int other = -1;          // this one does something else instead
  int elsewhere = -1;      // each reads its rows twice, and this one the first rows in their stead
};

// Writes a training step of two products on two stages, microbatch by microbatch.
class Program {
 public:
  explicit Program(const Settings& settings) : is(settings) {}

  std::string text() {
    const int whole = is.sliced || is.in_turn ? input("f32[64, 8] !f32[64@data, 8]") : 0;
    for (int k = 0; k < is.microbatches; ++k)
      rows.push_back(is.sliced ? part(1, whole, k) : is.in_turn ? 0 : input("f32[4, 8] !f32[4@data, 8]"));
    for (int k = 0; k < is.microbatches && is.elsewhere >= 0 && is.sliced; ++k)
      again.push_back(part(1, whole, k == is.elsewhere ? 0 : k));
    for (int k = 0; k < is.microbatches; ++k) microbatch(k, whole);
    const int after = 2 * is.microbatches + 1;
    if (is.summed) {
      int sum = losses[1];
      for (size_t k = 2; k < losses.size(); k += 2)
        sum = node(after, "f32[]", "aten.sub.Tensor", {sum, losses[k]}, ", 1");
      keep(sum);
    }
    if (is.total) keep(carried["total"]);
    if (is.errors) keep(carried["errors"]);
    keep(carried["w0"], " tied %1");
    keep(carried["w1"], " tied %2");
    return "mesh(pipe=2, data=2)\nschedule \"1f1b\"\n%1 = input f32[8, 8] !f32[8, 8] on pipe=0 state\n"
           "%2 = input f32[8, 8] !f32[8, 8] on pipe=1 state\n" +
           inputs + nodes + ends;
  }

 private:
  int input(const std::string& type) {
    inputs += "%" + std::to_string(values) + " = input " + type + "\n";
    return values++;
  }
  int node(int phase, const std::string& type, const std::string& op, const std::vector<int>& read,
           const std::string& rest = "") {
    nodes += "%" + std::to_string(values) + " : " + type + " = " + op + "(";
    for (size_t i = 0; i < read.size(); ++i) nodes += (i ? ", %" : "%") + std::to_string(read[i]);
    nodes += rest + ") phase " + std::to_string(phase) + "\n";
    return values++;
  }
  int part(int phase, int whole, int k) {
    const std::string range = std::to_string(4 * k) + ", " + std::to_string(4 * k + 4);
    return node(phase, "f32[4, 8]", "aten.slice.Tensor", {whole}, ", 0, " + range + ", 1");
  }
  void add_up(const std::string& name, int phase, const std::string& type, int term) {
    const auto before = carried.find(name);
    carried[name] =
        before == carried.end() ? term : node(phase, type, "aten.add.Tensor", {before->second, term}, ", 1");
  }

  void microbatch(int k, int whole) {
    const int forward = 2 * k + 1, backward = 2 * k + 2;
    int x = is.in_turn ? part(forward, whole, k) : rows[k];
    if (is.elsewhere >= 0) {
      const int begin = k == is.elsewhere ? 0 : k;
      x = node(forward, "f32[4, 8]", "aten.mul.Tensor", {x, is.in_turn ? part(forward, whole, begin) : again[k]});
    }
    if (is.random) x = node(forward, "f32[4, 8]", "aten.mul.Tensor", {x, noise(forward, x)});
    const int h = node(forward, "f32[4, 8]", k == is.other ? "aten.exp" : "aten.tanh",
                       {node(forward, "f32[4, 8]", "aten.mm", {x, 1})});
    const int z = node(forward, "f32[4, 8]", "aten.mm", {h, 2});
    const int loss = node(forward, "f32[]", "aten.sum", {z}, ", none");
    const int g = node(backward, "f32[4, 8]", "aten.mul.Tensor", {z, h});
    const int turned = node(backward, "f32[8, 8]", "aten.permute", {2}, ", [1, 0]");
    const int gh = node(backward, "f32[4, 8]", "aten.mm", {g, turned});
    const int ht = node(backward, "f32[8, 4]", "aten.permute", {h}, ", [1, 0]");
    const int xt = node(backward, "f32[8, 4]", "aten.permute", {x}, ", [1, 0]");
    add_up("w1", backward, "f32[8, 8]", node(backward, "f32[8, 8]", "aten.mm", {ht, g}));
    add_up("w0", backward, "f32[8, 8]", node(backward, "f32[8, 8]", "aten.mm", {xt, gh}));
    if (is.odd_last && k + 1 == is.microbatches) keep(node(backward, "f32[4, 8]", "aten.exp", {gh}));
    if (is.total && is.from_zero && k == 0)
      carried["total"] = node(backward + 1, "f32[]", "aten.add.Scalar", {loss}, ", 0, 1");
    else if (is.total)
      add_up("total", backward + 1, "f32[]", loss);
    for (int e = 1, last = z; e <= is.errors; ++e) {
      last = node(backward + 1, "f32[4, 8]", "aten.abs", {last});
      if (e == is.errors)
        add_up("errors", backward + 1, "f32[]", node(backward + 1, "f32[]", "aten.sum", {last}, ", none"));
    }
    if (is.listed) keep(loss);
    losses.push_back(loss);
  }
  int noise(int phase, int like) {
    return node(phase, "f32[4, 8]", "aten.mul.Scalar", {like}, ", real#" + std::to_string(params++));
  }
  void keep(int value, const std::string& rest = "") { ends += "return %" + std::to_string(value) + rest + "\n"; }

  const Settings is;
  int values = 3, params = 0;
  std::string inputs, nodes, ends;
  std::vector<int> rows, again, losses;
  std::map<std::string, int> carried;
};

// What an output is computed from, and how, whatever is moved between devices on the way.
std::vector<uint64_t> meanings_of_all(const Graph& graph) {
  std::vector<uint64_t> of(graph.values.size(), 0);
  for (size_t i = 0; i < graph.inputs.size(); ++i) of[graph.inputs[i].value] = hash_combine(1, i);
  for (const Node& node : graph.nodes) {
    if (is_collective(node)) {
      for (size_t i = 0; i < node.inputs.size(); ++i) of[node.output + i] = of[node.inputs[i]];
      continue;
    }
    uint64_t h = node.call->hash;
    for (ValueId value : node.inputs) h = hash_combine(h, of[value]);
    for (uint32_t i = 0; i < node.call->num_params; ++i) h = hash_combine(h, node.param + i);
    for (ValueId r = 0; r < node.call->outputs.size(); ++r) of[node.output + r] = hash_combine(h, r);
  }
  std::vector<uint64_t> outputs;
  for (const Output& output : graph.outputs) outputs.push_back(of[output.value]);
  return outputs;
}

// Planned as it is, microbatch by microbatch.
Graph planned_whole(const Graph& traced) {
  Draft draft{traced};
  note_starts(draft.graph);
  for (const Pass& pass : all_passes())
    if (pass.name != std::string("roll")) pass.run(draft, {});
  return draft.graph;
}

bool is_rolled(const Graph& traced) { return find_loop(traced).has_value(); }

size_t collectives(const Graph& graph) {
  return static_cast<size_t>(std::count_if(graph.nodes.begin(), graph.nodes.end(), is_collective));
}

void check_alike(const Settings& settings, bool rolled = true) {
  const Graph traced = parse_graph(Program(settings).text());
  CHECK_EQ(is_rolled(traced), rolled);
  const Graph made = compile(traced, {}), whole = planned_whole(traced);
  CHECK(meanings_of_all(made) == meanings_of_all(whole));
  CHECK_EQ(made.nodes.size(), whole.nodes.size());
  CHECK_EQ(collectives(made), collectives(whole));
  CHECK_EQ(made.outputs.size(), traced.outputs.size());
  const StartsOfPlan a = [&] {
    Graph g = made;
    return free_starts(traced, g);
  }();
  const StartsOfPlan b = [&] {
    Graph g = whole;
    return free_starts(traced, g);
  }();
  CHECK(a.values == b.values);
  CHECK(a.open == b.open);
  std::vector<std::pair<uint32_t, uint32_t>> equal = a.equal, others = b.equal;
  std::sort(equal.begin(), equal.end()), std::sort(others.begin(), others.end());
  CHECK(equal == others);
}

}  // namespace

TEST(a_loop_is_planned_as_its_microbatches_are_one_by_one) {
  for (int microbatches : {5, 6, 8, 13}) check_alike({.microbatches = microbatches});
}

TEST(a_loop_of_few_microbatches_is_planned_whole) {
  for (int microbatches : {1, 2, 3, 4}) check_alike({.microbatches = microbatches}, false);
}

TEST(each_microbatch_takes_its_own_rows) {
  check_alike({.sliced = true});
  check_alike({.in_turn = true});
}

TEST(rows_that_are_the_same_in_the_first_and_the_last_microbatch_alone) {
  check_alike({.sliced = true, .elsewhere = 5});
  check_alike({.in_turn = true, .elsewhere = 5});
}

TEST(each_microbatch_has_its_own_parameters) { check_alike({.random = true}); }

TEST(a_sum_goes_from_each_microbatch_to_the_next) { check_alike({.total = true}); }

TEST(what_follows_a_backward_pass_is_of_its_microbatch) {
  for (const bool sliced : {false, true})
    for (const int errors : {0, 1, 3})
      for (const int microbatches : {5, 6, 9}) {
        const Settings settings{
            .microbatches = microbatches, .sliced = sliced, .total = true, .from_zero = true, .errors = errors};
        check_alike(settings);
        const auto loop = find_loop(parse_graph(Program(settings).text()));
        CHECK(loop && loop->first == 2 && loop->last == static_cast<uint32_t>(microbatches));
      }
  check_alike({.in_turn = true, .total = true, .errors = 2});
  check_alike({.random = true, .total = true, .from_zero = true, .listed = true, .summed = true, .odd_last = true});
}

TEST(values_of_microbatches_outlive_the_step) { check_alike({.listed = true}); }

TEST(what_follows_reads_some_microbatches) { check_alike({.total = true, .listed = true, .summed = true}); }

TEST(the_last_microbatch_may_do_more) { check_alike({.microbatches = 9, .odd_last = true}); }

TEST(all_of_it_at_once) {
  check_alike({.microbatches = 12, .in_turn = true, .random = true, .total = true, .listed = true, .summed = true});
  check_alike({.microbatches = 7, .sliced = true, .random = true, .total = true, .summed = true});
}

TEST(a_microbatch_that_differs_ends_the_loop) {
  const Graph traced = parse_graph(Program({.microbatches = 12, .other = 8}).text());
  const auto loop = find_loop(traced);
  CHECK(loop.has_value());
  if (loop) CHECK_EQ(loop->last, 8u);
  CHECK(meanings_of_all(compile(traced, {})) == meanings_of_all(planned_whole(traced)));
}

TEST(the_search_looks_at_three_microbatches_of_64) {
  const auto costs = [](int microbatches) {
    Draft draft{parse_graph(Program({.microbatches = microbatches, .total = true, .from_zero = true}).text())};
    for (const Pass& pass : all_passes()) {
      pass.run(draft, {});
      if (pass.name == std::string("search")) return draft.decisions->effort.costs_asked;
    }
    return int64_t{0};
  };
  CHECK(costs(64) < 3 * costs(2));
  CHECK_EQ(costs(64), costs(16));
}
