// SPDX-License-Identifier: Apache-2.0
// Compile: the passes in their order, with a numbered dump after each.
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "passes/lower_permutes.h"
#include "passes/passes.h"

namespace spmdx {
namespace {

// One file per program and pass: 003-03-propagate.txt.
void dump(const Graph& graph, const CompileOptions& options, int program, int step, const char* pass) {
  if (options.dump_dir.empty()) return;
  std::filesystem::create_directories(options.dump_dir);
  char name[96];
  std::snprintf(name, sizeof name, "%03d-%02d-%s.txt", program, step, pass);
  std::ofstream(std::filesystem::path(options.dump_dir) / name) << print(graph, options.source);
}

template <class Seen>  // a graph, or a constant one
auto of_graph(void (*pass)(Seen&)) {
  return [pass](Draft& draft, const CompileOptions&) { pass(draft.graph); };
}
auto of_graph(void (*pass)(Graph&, const CompileOptions&)) {
  return [pass](Draft& draft, const CompileOptions& options) { pass(draft.graph, options); };
}

}  // namespace

const std::vector<Pass>& all_passes() {
  static const std::vector<Pass> passes = {
      {"simplify", of_graph(simplify)},                // drops duplicates, and what no output needs
      {"split-constants", of_graph(split_constants)},  // gives each use of a constant a node of its own
      {"propagate", of_graph(propagate)},              // from annotations to a sharding for every value
      {"expand", of_graph(expand_composites)},         // softmax, norms, attention … that are best cut inside
      {"interleave", try_interleaved},                 // merged dims whose minor part is cut, in another order
      {"split-views", try_split_views},                // slices of equal pieces of a dim, as a view and selects
      {"search", search},                              // a strategy for every node, by cost
      {"partition", partition},                        // inserts the collectives
      {"lower-permutes", of_graph(lower_permutes)},    // moves of rows between devices become collectives
      {"schedule", of_graph(schedule)},                // the order, and buckets of collectives
      {"verify", of_graph(verify)},                    // checks the result, from the rules alone
  };
  return passes;
}

void compile(Graph& graph, const CompileOptions& options) {
  static std::atomic<int> programs = 0;
  const int number = options.dump_dir.empty() ? 0 : programs++;
  int step = 0;
  Draft draft{std::move(graph), {}};
  dump(draft.graph, options, number, step++, "traced");
  for (const Pass& pass : all_passes()) {
    pass.run(draft, options);
    dump(draft.graph, options, number, step++, pass.name);
  }
  graph = std::move(draft.graph);
}

}  // namespace spmdx
