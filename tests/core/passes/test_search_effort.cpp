// SPDX-License-Identifier: Apache-2.0
// How much the search looks at for a node, by the readers of a value: counts that do not depend on the machine.
#include "check.h"
#include "graph/text.h"
#include "passes/passes.h"

using namespace spmdx;

namespace {

struct Each {
  double costs, demands;
};

Each effort(const std::string& text, int nodes) {
  Graph graph = parse_graph(text);
  propagate(graph, {});
  const Effort effort = decide(graph, {}).effort;
  return {static_cast<double>(effort.costs_asked) / nodes, static_cast<double>(effort.demands_seen) / nodes};
}

std::string percent(int value) { return "%" + std::to_string(value); }

// An input for each so many nodes that read it.
std::string inputs(int nodes, int readers, int first, const std::string& type) {
  std::string text;
  for (int i = 0; i * readers < nodes; ++i)
    text += percent(first + i) + " = input " + type.substr(0, type.find(" state")) + " !" + type + "\n";
  return text;
}

// So many rows of each table, added to something.
Each of_rows(int nodes, int readers) {
  const int groups = (nodes + readers - 1) / readers;
  std::string text = "mesh(data=2, model=2)\n", outputs;
  text += inputs(nodes, readers, 0, "f32[" + std::to_string(readers) + ", 64@model]");
  text += inputs(nodes, readers, groups, "f32[64@data]");
  for (int i = 0, value = 2 * groups; i < nodes; ++i, value += 2) {
    const int group = i / readers;
    text += percent(value) + " : f32[64] = aten.select.int(" + percent(group) + ", 0, " + std::to_string(i % readers) +
            ")\n" + percent(value + 1) + " : f32[64] = aten.add.Tensor(" + percent(value) + ", " +
            percent(groups + group) + ", 1)\n";
    outputs += "return " + percent(value + 1) + "\n";
  }
  return effort(text + outputs, 2 * nodes);
}

// So many products of each cut weight, that do not follow from each other.
Each of_weights(int nodes, int readers, const std::string& weight) {
  const int groups = (nodes + readers - 1) / readers;
  std::string text = "mesh(data=2, model=2)\n", outputs;
  text += inputs(nodes, readers, 0, weight) + inputs(nodes, readers, groups, "f32[64@data, 64]");
  for (int i = 0, value = 2 * groups; i < nodes; ++i, ++value) {
    text += percent(value) + " : f32[64, 64] = aten.mm(" + percent(groups + i / readers) + ", " + percent(i / readers) +
            ")\n";
    outputs += "return " + percent(value) + "\n";
  }
  return effort(text + outputs, nodes);
}

// Ten times the nodes, and readers of one value.
template <class Measure>
void check_flat(const Measure& measure) {
  for (const int readers : {1, 100, 1'000}) {
    const bool all = readers == 1'000;
    const Each few = measure(1'000, readers), many = measure(10'000, all ? 10'000 : readers);
    CHECK(few.costs > 1 && few.demands > 1);
    CHECK(many.costs <= 1.1 * few.costs);
    CHECK(many.demands <= 1.1 * few.demands);
  }
  // Where many read one value, a chain that gives it one layout more asks all of them whether they want it too.
  CHECK(measure(10'000, 10'000).costs <= 2 * measure(10'000, 1).costs);
}

}  // namespace

TEST(rows_of_a_table_are_looked_at_as_often_however_many_are_read) { check_flat(of_rows); }

TEST(products_of_a_weight_are_looked_at_as_often_however_many_there_are) {
  for (const std::string weight : {"f32[64, 64@model]", "f32[64, 64@model] state"})
    check_flat([&](int nodes, int readers) { return of_weights(nodes, readers, weight); });
}
