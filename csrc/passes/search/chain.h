// SPDX-License-Identifier: Apache-2.0
// Chain: nodes that change one after the other, so that one layout is carried over many of them at once.
#pragma once
#include <algorithm>
#include <deque>
#include <set>

#include "passes/search/assignment.h"

namespace spmdx {

// A node is to have or want `layout` for one of its tensors: operands first, then results.
struct Step {
  NodeId node;
  size_t tensor;
  ShardingRef layout;
};
using Steps = std::deque<Step>;

// Which nodes follow one that changed: all neighbours; all but the other readers of a value that is made for one
// reader; those that add to a partial sum.
enum class Spread { all, branch, joins };

class Chain {
 public:
  explicit Chain(Assignment& assignment)
      : assignment_(assignment), graph_(assignment.graph()), announced_(graph_.values.size()) {}

  // Asks all nodes for their best response, and those that notice that a neighbour has changed, until none changes any
  // more.
  void descend();
  // The same from the neighbours of a node on.
  void descend_around(NodeId node);
  // Takes the steps, and those that follow from them. Nodes in `touched` have changed already.
  void spread_out(Steps steps, Spread spread, std::set<NodeId> touched);

  // Asks nodes that have changed, and their neighbours, as descend() does.
  void settle(const std::set<NodeId>& changed);

  // Steps to every reader of `value` that wants another layout.
  void tell_readers(ValueId value, const ShardingRef& layout, Steps& steps) const;
  // Steps to all neighbours of a node that had the choice `before`, to follow it.
  void tell_neighbours(NodeId node, const Choice& before, Steps& steps) const;

  // The state before some decisions.
  struct Before {
    size_t mark;
    int64_t total, moving, unweighted, moves_and_products, merged_starts;
  };
  Before before() const {
    return {assignment_.mark(),
            assignment_.total(),
            assignment_.moving(),
            assignment_.unweighted(),
            assignment_.moves_and_products(),
            assignment_.merged_starts_ns()};
  }
  // Starts of collectives since saved that the schedule would have merged anyway.
  int64_t starts_saved(const Before& since) const {
    return std::max<int64_t>(0, since.merged_starts - assignment_.merged_starts_ns());
  }
  // Undoes the decisions since then unless the result is better.
  bool keep(const Before& since, bool better);

 private:
  void answer(std::set<NodeId> now, NodeId later);
  void announce(NodeId node);
  bool heard_of(NodeId node, uint64_t round) const;
  bool take_best_response(NodeId node);
  bool adopt(const Step& step);
  void ask_producers(NodeId node, const Choice& before, Steps& steps) const;
  bool joins(NodeId user, ValueId value, const ShardingRef& layout) const;
  void tell_joining_readers(ValueId sum, Steps& steps) const;

  struct Announced {  // the last two rounds in which a node that has the value changed
    uint64_t last = 0, before = 0;
  };

  Assignment& assignment_;
  const Graph& graph_;
  std::vector<Announced> announced_;  // by value
  uint64_t round_ = 0;
};

}  // namespace spmdx
