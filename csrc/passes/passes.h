// SPDX-License-Identifier: Apache-2.0
// The passes: Graph in, Graph changed, in the order of compile.cpp.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/text.h"
#include "rules/rule.h"

namespace spmdx {

constexpr int64_t kNoLimit = INT64_MAX;

struct CompileOptions {
  Topology topology;
  std::string dump_dir;  // empty: no dumps
  SourcePrinter source;  // for dumps; passes keep numbers of sources, which reports resolve
  int64_t bucket_bytes = 30 << 20;
  // Bytes a device may spend on gathered parameters that are kept from forward to backward.
  int64_t gather_budget = 0;
};

// Gives every use of a constant (no operands, not random) a node of its own, so that uses do not bind each other; not
// of one that is annotated as data.
void split_constants(Graph& graph);

// Drops nodes no output needs, merges equal nodes (not random ones).
void simplify(Graph& graph);

// From the annotations, physical layouts, constraints and ties to a sharding and a provenance on every value. Never
// changes what the user wrote. Ensures: Value::sharding is set and not partial, for all values, when graph.mesh is set.
void propagate(Graph& graph, const CompileOptions& options);

// Chooses a strategy for every node by cost and inserts collectives, so that every node can run on local shards.
// Ensures: Value::sharding is what the value really has (may be partial); inputs have their physical layout; outputs
// have their annotation or propagated sharding, never partial.
void partition(Graph& graph, const CompileOptions& options);

// Orders nodes, merges neighbouring collectives into buckets.
void schedule(Graph& graph, const CompileOptions& options);

// Throws InternalError where an op's operands and results do not fit its rule, or a partial meets a non-linear op.
void verify(const Graph& graph);

// All of them, with numbered dumps. A graph without mesh is only simplified.
void compile(Graph& graph, const CompileOptions& options);

struct Pass {
  const char* name;
  std::function<void(Graph&, const CompileOptions&)> run;
};
const std::vector<Pass>& all_passes();  // in compile's order

}  // namespace spmdx
