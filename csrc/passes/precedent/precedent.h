// SPDX-License-Identifier: Apache-2.0
// Precedent: what was decided for one program, so that others that differ from it by sizes alone need no search.
#pragma once
#include <cstdint>
#include <vector>

#include "passes/precedent/trail.h"
#include "passes/strategy/strategy.h"

namespace spmdx {

// Nothing in it can make a plan wrong: strategies that do not fit are chosen anew, and plans are verified as all are.
struct Precedent {
  uint64_t traced = 0;                                   // the structural hash of its program
  Trail trail;                                           // to the graph that was searched
  bool as_a_whole = false;                               // a loop in it was not rolled
  std::vector<bool> split_views, interleaved, expanded;  // of the forms that a pass tried, in order: which were kept
  std::vector<bool> composites;      // nodes that are expanded in the form in which more of them are
  int64_t costs_asked = 0;           // by all searches for the plan
  uint64_t likeness = 0;             // of the graph that was searched
  std::vector<Strategy> strategies;  // each once
  std::vector<uint32_t> of_nodes;    // by node of that graph, one of these
  std::vector<bool> transient;       // by value of that graph

  bool operator==(const Precedent&) const = default;
};

// What two programs have in common that differ by sizes alone: ops, wiring, cuts of inputs, annotations. Told apart are
// dims of no, of one and of more elements, and those that are cut evenly, unevenly, or into fewer parts than there are
// devices. Equal in every process.
uint64_t likeness_of(const Graph& traced);

// Notes the strategy of each node of a propagated graph.
void note_strategies(Precedent& precedent, const Graph& searched, const std::vector<const Strategy*>& strategies);
// Whether it is of a graph like this one, so that its strategies are for these nodes. REQUIRES: propagated.
bool is_like(const Precedent& precedent, const Graph& graph);

}  // namespace spmdx
