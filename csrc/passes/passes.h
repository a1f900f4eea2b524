// SPDX-License-Identifier: Apache-2.0
// The passes: Graph in, Graph changed, in the order of compile.cpp.
#pragma once
#include <functional>
#include <vector>

#include "passes/precedent/trail.h"
#include "passes/search/search.h"
#include "passes/settings/options.h"

namespace spmdx {

// Gives every use of a constant (no operands, not random) a node of its own, so that the layout of one use does not
// bind another. A constant that is annotated as data keeps one node.
void split_constants(Graph& graph);

// Drops nodes that no output needs, merges equal data movements, puts views right before their first reader.
void simplify(Graph& graph);

// Derives a sharding and a provenance for every value from annotations, physical layouts, constraints and ties. Never
// changes what the user wrote. Ensures: Value::sharding is set and not partial, for all values, when graph.mesh is set.
void propagate(Graph& graph, const CompileOptions& options);
void propagate(Graph& graph, const CompileOptions& options, Walk& walk);

// Replaces composites that are best cut inside by the ops that they are made of. REQUIRES and ensures: propagated.
void expand_composites(Graph& graph, const CompileOptions& options, Walk& walk);

// The same program with rows of merged dims in another order (passes/rewrites/merged_dims.h), with slices seen as
// pieces (passes/rewrites/split_views.h), or with more composites expanded, for which operands would be gathered. Kept
// where its plan is cheaper. REQUIRE and ensure: propagated.
void try_interleaved(Draft& draft, const CompileOptions& options);
void try_split_views(Draft& draft, const CompileOptions& options);
void try_expanded(Draft& draft, const CompileOptions& options);

// Inserts the collectives that the strategies ask for, so that every node can run on local shards.
// Ensures: Value::sharding is what the value really has (may be partial); inputs have their physical layout; outputs
// have their annotation or propagated sharding, never partial.
void partition(Draft& draft, const CompileOptions& options);

// Adds of rows to zeros, which are then added to a value, add to that value. REQUIRES and ensures: partitioned.
void fuse_adds(Graph& graph);

// Orders nodes and merges collectives that are near each other into buckets.
void schedule(Graph& graph, const CompileOptions& options);

// Collectives between processes are the backend's own, where these are asked for or take less time.
void choose_natives(Graph& graph, const CompileOptions& options);

// Throws InternalError where an op's operands and results do not fit its rule, or a partial meets a non-linear op.
void verify(const Graph& graph);

// All passes on a copy of what was recorded, with numbered dumps. A graph without mesh is only simplified. Each node
// that has a start is told where it has it from (passes/free_starts.h).
Graph compile(const Graph& traced, const CompileOptions& options);

struct Compiled {
  Graph graph;
  std::shared_ptr<const PlacedStep> placed;    // where a graph with kinds runs
  std::shared_ptr<const Precedent> precedent;  // what was decided
  bool follows = false;                        // it was decided as `like` was
  bool provisional = false;                    // and sizes of its own may ask for another plan
};
// The same. `like`: what was decided for a program that may differ by sizes alone; null: there is none.
Compiled compile(const Graph& traced, const CompileOptions& options, const Precedent* like);

struct Pass {
  const char* name;
  std::function<void(Draft&, const CompileOptions&)> run;
};
const std::vector<Pass>& all_passes();  // in compile's order

}  // namespace spmdx
