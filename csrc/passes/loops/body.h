// SPDX-License-Identifier: Apache-2.0
// Body: the nodes of a planned loop that each iteration has for its own, and where each gets what it reads.
#pragma once
#include <optional>
#include <unordered_map>
#include <vector>

#include "passes/loops/roll.h"

namespace spmdx {

struct Body {
  struct Member {
    NodeId node;
    bool own_params = false;  // an iteration's are so far from those of the one before
    // Of each iteration from the first to the last, the recorded node from which it has its start; empty: all have it
    // from the same.
    std::vector<NodeId> starts_of;
  };
  std::vector<Member> members;                   // in program order
  std::unordered_map<ValueId, ValueId> carried;  // what an iteration reads of the one before: its own value of this
  std::unordered_map<ValueId, size_t> own;       // inputs of the first iteration alone: places in Loop::own
  // By recorded node that makes a part of an invariant for the first iteration: those that do for each.
  std::unordered_map<NodeId, std::vector<NodeId>> parts;
  // By node that follows the loop: which of its operands are those of which iterations.
  struct Read {
    size_t operand;
    uint32_t iteration;
  };
  std::unordered_map<NodeId, std::vector<Read>> reads;
  std::vector<uint32_t> iterations;  // by node: which it belongs to; what follows: kNone
};

// The recorded node that is in another iteration what this one is in the first; itself, if it is of none.
NodeId in_iteration(const Loop& loop, const Body& body, NodeId recorded, uint32_t iteration);

// Nothing where the first and the last iteration are not alike, or where what the others do would be lost.
std::optional<Body> find_body(const Graph& graph, const Rolled& rolled);

}  // namespace spmdx
