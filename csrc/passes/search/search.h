// SPDX-License-Identifier: Apache-2.0
// Search: a choice for every node of a propagated graph, so that the total time is small.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "passes/precedent/trail.h"
#include "passes/readers/effort.h"
#include "passes/settings/options.h"
#include "passes/strategy/choices.h"

namespace spmdx {

class Assignment;
struct Precedent;   // passes/precedent/precedent.h
struct Rolled;      // passes/loops/roll.h
struct PlacedStep;  // passes/places/stages_by_time.h

// What each node does, and what that costs.
struct Decisions {
  std::vector<ChoiceRef> choices;       // by node
  std::vector<bool> transient;          // by value: gathered copies are dropped between uses that lie far apart
  int64_t total_ns = 0, moving_ns = 0;  // of the total, the moves
  Effort effort;
};

// A program on its way to a plan.
struct Draft {
  Graph graph = {};
  std::optional<Decisions> decisions = {};             // what search has decided for this graph
  std::shared_ptr<const Rolled> rolled = nullptr;      // where the graph has a loop of which iterations are left out
  std::shared_ptr<const PlacedStep> placed = nullptr;  // by time, where it has kinds
  const Precedent* follows = nullptr;                  // what was decided for a program of other sizes; null: none
  bool follows_itself = false;                         // that program is this one, with these sizes
  std::shared_ptr<Precedent> precedent = nullptr;      // what is decided here, for others; null: nobody asks
  Walk walk = {};                                      // along the trail of one or the other
  bool strays = false;                                 // it is not like the program that it follows
};

// The pass: chooses a strategy for every node by cost, if that has not been done for this graph. REQUIRES: propagated.
void search(Draft& draft, const CompileOptions& options);

// What search_locally finds. What is gathered more than once shows only after a search, so where
// options.gather_budget allows for keeping some of it, a second search is made. REQUIRES: propagated.
Decisions decide(const Graph& graph, const CompileOptions& options);

// What an assignment has come to.
Decisions decisions_of(const Assignment& assignment, std::vector<bool> transient);

// Notes what search has decided in a propagated graph.
void note_decisions(Precedent& precedent, const Graph& searched, const Decisions& decisions);
// What the precedent decides; and what is better now that sizes are others, if they are not `equal`. Nothing where the
// graph is not like the one that was searched, or where that changes the answer. REQUIRES: propagated.
std::optional<Decisions> decide_like(const Precedent& precedent, bool equal, const Graph& graph,
                                     const CompileOptions& options);

// Decides every node once, in program order, by what is known so far; or as `wish` says, where it is not null.
using Wish = std::function<ChoiceRef(NodeId)>;
void choose_greedily(Assignment& assignment, const Wish& wish = {});

// Decides every node greedily, then changes decisions, one node or several at a time, as long as the total falls. Two
// such starts are made, and the better one goes on.
void search_locally(Assignment& assignment);

// Changes single decisions as long as the total falls, then several at a time until about so many costs were asked for.
// REQUIRES: every node is decided.
void improve_briefly(Assignment& assignment, int64_t costs);

}  // namespace spmdx
