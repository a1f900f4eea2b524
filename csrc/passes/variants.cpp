// SPDX-License-Identifier: Apache-2.0
// Variants: the same program, seen in another way. One is kept where its plan is cheaper.
#include "passes/chunks.h"
#include "passes/limits.h"
#include "passes/passes.h"
#include "passes/rows.h"

namespace spmdx {
namespace {

// Searches once: what was found goes on to partition with the program.
int64_t total_ns(Program& program, const CompileOptions& options) {
  search(program, options);
  return program.decisions->total_ns;
}

Program propagated(Graph graph, const CompileOptions& options) {
  propagate(graph, options);
  expand_composites(graph, options);
  return {std::move(graph), {}};
}

void keep_cheaper(Program& best, Program other, const CompileOptions& options) {
  if (total_ns(other, options) < total_ns(best, options)) best = std::move(other);
}

}  // namespace

void try_turned_rows(Program& program, const CompileOptions& options) {
  if (!program.graph.mesh) return;
  const std::vector<Merge> merges = blocked_merges(program.graph);
  for (size_t i = 0; i < merges.size() && i < kLimits.turned_dims; ++i)
    if (auto turned = turn_rows(program.graph, merges[i]))
      keep_cheaper(program, propagated(std::move(*turned), options), options);
}

void try_chunks(Program& program, const CompileOptions& options) {
  if (!program.graph.mesh) return;
  auto chunks = see_chunks(program.graph);
  if (!chunks) return;
  Program seen = propagated(std::move(*chunks), options);
  try_turned_rows(seen, options);
  keep_cheaper(program, std::move(seen), options);
}

}  // namespace spmdx
