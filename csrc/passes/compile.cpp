// SPDX-License-Identifier: Apache-2.0
// Compile: the passes in their order, with a numbered dump after each.
#include <atomic>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>

#include "passes/free_starts.h"
#include "passes/loops/unroll.h"
#include "passes/lower_permutes.h"
#include "passes/memory/rematerialise.h"
#include "passes/passes.h"
#include "passes/places/offload.h"
#include "passes/places/order.h"
#include "passes/places/places.h"
#include "passes/precedent/precedent.h"
#include "passes/search/decisions_text.h"

namespace spmdx {
namespace {

// The files of one program: 003-04-propagate.txt after each pass, and beside that of search 003-09-decisions.txt.
class Dump {
 public:
  explicit Dump(const CompileOptions& options) : options_(options) {
    static std::atomic<int> programs = 0;
    if (on()) program_ = programs++;
    if (on()) std::filesystem::create_directories(options.dump_dir);
  }

  void after(std::string_view pass, const Graph& graph, const std::optional<Decisions>& decisions = {}) {
    if (!on()) return;
    write(pass, print(graph, options_.source));
    if (pass == "search" && decisions) write("decisions", decisions_text(graph, *decisions, options_));
    ++step_;
  }
  void after(std::string_view pass, const Draft& draft) { after(pass, draft.graph, draft.decisions); }

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

// Where the graph has a loop, the draft has three iterations of it; else what `whole` gives.
template <class Whole>
void roll_loop(Draft& draft, const std::shared_ptr<const Graph>& traced, const Whole& whole) {
  const bool as_a_whole = draft.follows && draft.follows->as_a_whole;
  if (std::optional<Loop> loop = as_a_whole ? std::nullopt : find_loop(*traced))
    draft.rolled = std::make_shared<Rolled>(roll(traced, std::move(*loop), draft.graph));
  else
    draft.graph = whole();
}

void roll_pass(Draft& draft, const CompileOptions&) {
  const auto traced = std::make_shared<Graph>(std::move(draft.graph));
  note_starts(*traced);
  roll_loop(draft, traced, [&] { return std::move(*traced); });
}

void propagate_pass(Draft& draft, const CompileOptions& options) { propagate(draft.graph, options, draft.walk); }

void expand_pass(Draft& draft, const CompileOptions& options) { expand_composites(draft.graph, options, draft.walk); }

void search_pass(Draft& draft, const CompileOptions& options) {
  search(draft, options);
  if (draft.precedent && draft.decisions) note_decisions(*draft.precedent, draft.graph, *draft.decisions);
}

void place_pass(Draft& draft, const CompileOptions& options) { draft.placed = place(draft.graph, options); }

// Where the first and the last iteration are not planned alike, the program is planned as it was.
void unroll_pass(Draft& draft, const CompileOptions& options) {
  const std::shared_ptr<const Rolled> rolled = std::exchange(draft.rolled, nullptr);
  if (!rolled || unroll(draft.graph, *rolled)) return;
  draft.graph = *rolled->whole;
  note_starts(draft.graph);
  if (draft.precedent) {
    draft.precedent->trail = {};
    draft.precedent->as_a_whole = true;
  }
  draft.strays |= draft.follows != nullptr;
  for (const Pass& pass : all_passes()) {
    if (pass.name == std::string_view("unroll")) return;
    if (pass.name != std::string_view("roll")) pass.run(draft, options);
  }
}

}  // namespace

const std::vector<Pass>& all_passes() {
  static const std::vector<Pass> passes = {
      {"roll", roll_pass},                             // of microbatches that are alike, three are planned
      {"simplify", of_graph(simplify)},                // drops duplicates, and what no output needs
      {"split-constants", of_graph(split_constants)},  // gives each use of a constant a node of its own
      {"propagate", propagate_pass},                   // from annotations to a sharding for every value
      {"expand", expand_pass},                         // softmax, norms, attention … that are best cut inside
      {"split-views", try_split_views},                // slices of equal pieces of a dim, as a view and selects
      {"interleave", try_interleaved},                 // merged dims whose minor part is cut, in another order
      {"expand-gathered", try_expanded},               // composites for whose sake a plan gathers
      {"search", search_pass},                         // a strategy for every node, by cost
      {"partition", partition},                        // inserts the collectives
      {"lower-permutes", of_graph(lower_permutes)},    // moves of rows between devices become collectives
      {"fuse-adds", of_graph(fuse_adds)},              // rows are added to a value, not to zeros that are added to it
      {"place", place_pass},                           // stages of a pipeline, and what is sent between them
      {"unroll", unroll_pass},                         // and the others do what the second of them does
      {"offload", of_graph(offload)},                  // what lies on hosts is brought to devices, and back
      {"order", of_graph(order_by_schedule)},          // microbatches, as the stages' schedule has them
      {"schedule", of_graph(schedule)},                // the order, and buckets of collectives
      {"rematerialise", of_graph(rematerialise)},      // under a memory limit, computes anew what is not held
      {"choose-natives", of_graph(choose_natives)},    // which collectives are those of the backend of processes
      {"verify", of_graph(verify)},                    // checks the result, from the rules alone
  };
  return passes;
}

namespace {

// False where it is not like the program that it follows.
bool run_passes(const Graph& traced, Draft& draft, const CompileOptions& options) {
  Dump dump(options);
  dump.after("traced", traced);
  roll_loop(draft, {std::shared_ptr<const Graph>(), &traced}, [&] {
    Graph graph = traced;
    note_starts(graph);
    return graph;
  });
  dump.after("roll", draft);
  for (const Pass& pass : all_passes()) {
    if (pass.name == std::string_view("roll")) continue;  // done, without a copy of the whole
    pass.run(draft, options);
    if (draft.strays) return false;
    dump.after(pass.name, draft);
  }
  return true;
}

}  // namespace

Graph compile(const Graph& traced, const CompileOptions& options) {
  Draft draft;
  run_passes(traced, draft, options);
  return std::move(draft.graph);
}

Compiled compile(const Graph& traced, const CompileOptions& options, const Precedent* like) {
  Draft draft;
  draft.follows = like;
  if (like) {
    draft.follows_itself = like->traced == structural_hash(traced);
    draft.walk.follows = &like->trail;
  } else {
    draft.precedent = std::make_shared<Precedent>();
    draft.precedent->traced = structural_hash(traced);
    draft.walk.leaves = &draft.precedent->trail;
  }
  try {
    if (!run_passes(traced, draft, options)) return compile(traced, options, nullptr);
  } catch (const std::exception&) {  // it says what no search says, or what does not fit the memory with these sizes
    if (!like) throw;
    return compile(traced, options, nullptr);
  }
  return {std::move(draft.graph), std::move(draft.placed), std::move(draft.precedent), like != nullptr,
          like && !draft.follows_itself};
}

}  // namespace spmdx
