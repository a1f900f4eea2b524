// SPDX-License-Identifier: Apache-2.0
// Decisions as text: what is told of a node is what the search reckons with, and dumps tell it.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "check.h"
#include "graph/text.h"
#include "passes/passes.h"
#include "passes/search/assignment.h"
#include "passes/search/decisions_text.h"

using namespace spmdx;

namespace {

// A weight that two products read, one of them far away from the other's rows; a sum; an annotated result.
const char* const kProgram = R"(mesh(data=2, model=2)
%0 = input "w" f32[64@data, 64] !f32[64@data, 64] state
%1 = input "x" f32[256@data, 64] !f32[256@data, 64]
%2 : f32[256, 64] = aten.mm(%1, %0)
%3 : f32[256, 64] = aten.relu(%2)
%4 : f32[256, 64] = aten.mm(%3, %0)
%5 : f32[64] = aten.sum.dim_IntList(%4, [0], false, none)
%6 : f32[256, 64] = aten.add.Tensor(%3, %5, 1)
constrain %3 f32[256@(data,model), 64]
return %6
return %5
)";

Draft decided(const CompileOptions& options) {
  Draft draft{parse_graph(kProgram), {}};
  propagate(draft.graph, options);
  search(draft, options);
  return draft;
}

Assignment assigned(const Draft& draft, const CompileOptions& options) {
  Assignment assignment(draft.graph, options, draft.decisions->transient);
  for (NodeId node = 0; node < draft.graph.nodes.size(); ++node)
    assignment.decide(node, draft.decisions->choices[node]);
  return assignment;
}

}  // namespace

TEST(the_ways_around_a_node_take_what_its_moves_cost) {
  const CompileOptions options;
  const Draft draft = decided(options);
  Assignment assignment = assigned(draft, options);
  CHECK_EQ(assignment.total(), draft.decisions->total_ns);
  for (NodeId node = 0; node < draft.graph.nodes.size(); ++node)
    for (const ChoiceRef& choice : assignment.choices(node)) {
      int64_t cost = choice->time.weighted_ns;
      for (const Assignment::Way& way : assignment.ways_around(node, *choice)) cost += way.plan->cost_ns;
      CHECK_EQ(cost, assignment.cost_around(node, *choice));
    }
}

TEST(a_runner_up_takes_as_much_more_as_is_told) {
  const CompileOptions options;
  const Draft draft = decided(options);
  const std::string text = decisions_text(draft.graph, *draft.decisions, options);
  Assignment assignment = assigned(draft, options);
  for (NodeId node = 0; node < draft.graph.nodes.size(); ++node) {
    int64_t least = INT64_MAX;
    for (const ChoiceRef& choice : assignment.choices(node)) {
      const Placement& now = assignment.choice(node).placement;
      if (choice->placement.inputs == now.inputs && choice->placement.outputs == now.outputs) continue;
      const size_t mark = assignment.mark();
      assignment.decide(node, choice);
      least = std::min(least, assignment.total() - draft.decisions->total_ns);
      assignment.undo(mark);
    }
    const std::string start = "%" + std::to_string(draft.graph.nodes[node].output) + " : ";
    const std::string told = text.substr(text.find(start));
    CHECK_EQ(told.find("runner-up, " + std::to_string(least) + " ns more"), told.find("runner-up"));
  }
}

TEST(a_dump_has_the_decisions_with_the_lines_of_the_user) {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "spmdx_decisions_text";
  std::filesystem::remove_all(folder);
  CompileOptions options;
  Graph graph = parse_graph(kProgram);
  graph.nodes[0].source = 1;
  options.source = [](SourceId) { return std::string("train.py:12"); };
  options.dump_dir = folder.string();
  compile(graph, options);
  std::vector<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(folder))
    if (file.path().string().ends_with("-decisions.txt")) names.push_back(file.path().string());
  CHECK_EQ(names.size(), 1u);
  if (names.empty()) return;
  std::ifstream file(names[0]);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  const size_t line = text.find("  // train.py:12\n");
  CHECK_EQ(text.find("%2 : ") < line && line < text.find("%3 : "), true);
  text.erase(line, 16);
  options.source = {};
  Draft draft = decided(options);
  CHECK_EQ(text, decisions_text(draft.graph, *draft.decisions, options));
  std::filesystem::remove_all(folder);
}
