// SPDX-License-Identifier: Apache-2.0
// Compile: the passes in their order, with a numbered dump after each.
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "passes/lower_permutes.h"
#include "passes/passes.h"
#include "passes/places/order.h"
#include "passes/places/places.h"
#include "passes/search/decisions_text.h"

namespace spmdx {
namespace {

// The files of one program: 003-03-propagate.txt after each pass, and beside that of search 003-08-decisions.txt.
class Dump {
 public:
  explicit Dump(const CompileOptions& options) : options_(options) {
    static std::atomic<int> programs = 0;
    if (on()) program_ = programs++;
    if (on()) std::filesystem::create_directories(options.dump_dir);
  }

  void after(std::string_view pass, const Draft& draft) {
    if (!on()) return;
    write(pass, print(draft.graph, options_.source));
    if (pass == "search" && draft.decisions)
      write("decisions", decisions_text(draft.graph, *draft.decisions, options_));
    ++step_;
  }

 private:
  bool on() const { return !options_.dump_dir.empty(); }

  void write(std::string_view what, const std::string& text) const {
    char number[32];
    std::snprintf(number, sizeof number, "%03d-%02d-", program_, step_);
    std::ofstream(std::filesystem::path(options_.dump_dir) / (number + std::string(what) + ".txt")) << text;
  }

  const CompileOptions& options_;
  int program_ = 0, step_ = 0;
};

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
      {"split-views", try_split_views},                // slices of equal pieces of a dim, as a view and selects
      {"interleave", try_interleaved},                 // merged dims whose minor part is cut, in another order
      {"expand-gathered", try_expanded},               // composites for whose sake a plan gathers
      {"search", search},                              // a strategy for every node, by cost
      {"partition", partition},                        // inserts the collectives
      {"lower-permutes", of_graph(lower_permutes)},    // moves of rows between devices become collectives
      {"fuse-adds", of_graph(fuse_adds)},              // rows are added to a value, not to zeros that are added to it
      {"place", of_graph(place)},                      // stages of a pipeline, and what is sent between them
      {"order", of_graph(order_by_schedule)},          // microbatches, as the stages' schedule has them
      {"schedule", of_graph(schedule)},                // the order, and buckets of collectives
      {"verify", of_graph(verify)},                    // checks the result, from the rules alone
  };
  return passes;
}

void compile(Graph& graph, const CompileOptions& options) {
  Dump dump(options);
  Draft draft{std::move(graph), {}};
  dump.after("traced", draft);
  for (const Pass& pass : all_passes()) {
    pass.run(draft, options);
    dump.after(pass.name, draft);
  }
  graph = std::move(draft.graph);
}

}  // namespace spmdx
