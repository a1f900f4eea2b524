// SPDX-License-Identifier: Apache-2.0
// Collectives of a plan that are to be those of the backend of processes.
#include "check.h"
#include "graph/text.h"
#include "passes/passes.h"

using namespace spmdx;

namespace {

// A sum of products over "x", of which all devices want the whole, and rows that are gathered over it.
std::string program(int64_t rows, const std::string& dtype = "f32") {
  const std::string size = std::to_string(rows), x = dtype + "[" + size + ", 16";
  return "mesh(x=4)\n"
         "%0 = input " +
         x + "] !" + x + "@x]\n%1 = input " + dtype + "[16, 8] !" + dtype + "[16@x, 8]\n%2 : " + dtype + "[" + size +
         ", 8] = aten.mm(%0, %1)\n%3 = input " + dtype + "[" + size + ", 3] !" + dtype + "[" + size +
         "@x, 3]\n%4 : " + dtype + "[" + size + ", 3] = aten.neg(%3)\nreturn %2 !" + dtype + "[" + size +
         ", 8]\nreturn %4 !" + dtype + "[" + size + ", 3]\n";
}

// Those that are native, by name.
std::map<std::string, int> natives_of(const std::string& text, const CompileOptions& options) {
  const Graph graph = compile(parse_graph(text), options);
  CHECK_EQ(print(parse_graph(print(graph))), print(graph));
  std::map<std::string, int> found;
  for (const Node& node : graph.nodes) {
    if (node.native) ++found[std::string(name(collective_kind(node)))];
    CHECK(!node.native || print(graph).find(" native") != std::string::npos);
  }
  return found;
}

using Found = std::map<std::string, int>;

}  // namespace

TEST(plans_say_which_collectives_are_native) {
  CompileOptions options;
  NativePolicy& natives = options.topology.natives;
  CHECK(natives_of(program(8), options) == Found{});
  natives.unmeasured = Way::native;
  CHECK((natives_of(program(8), options) == Found{{"all_gather", 1}, {"all_reduce", 1}}));
  natives.sums = false;
  CHECK((natives_of(program(8), options) == Found{{"all_gather", 1}}));
  natives.way = Way::native;
  CHECK((natives_of(program(8), options) == Found{{"all_gather", 1}}));
  natives = {Way::direct, Way::native, true};
  CHECK(natives_of(program(8), options) == Found{});
}

TEST(what_backends_do_not_have_is_direct) {
  CompileOptions options;
  options.topology.natives.unmeasured = Way::native;
  CHECK((natives_of(program(9), options) == Found{{"all_reduce", 1}}));  // rows of 3, 2, 2, 2
  CHECK((natives_of(program(8, "bf16"), options) == Found{{"all_gather", 1}}));
}

TEST(measured_times_decide_by_size) {
  CompileOptions options;
  options.topology.levels[0].native_gathers = {{0, 2}};
  options.topology.levels[0].native_sums = {{1000, 2}, {4000, 0.5}};
  CHECK(natives_of(program(8), options) == Found{});
  CHECK((natives_of(program(800), options) == Found{{"all_reduce", 1}}));
  CHECK(hash(options) != hash(CompileOptions{}));
  CompileOptions other = options;
  other.topology.natives.sums = false;
  CHECK(hash(options) != hash(other));
}
