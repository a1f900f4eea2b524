// SPDX-License-Identifier: Apache-2.0
// Loop: what a program does again and again, once for each backward pass.
#pragma once
#include <optional>
#include <vector>

#include "graph/graph.h"

namespace spmdx {

// The microbatch that a phase belongs to, counted from 1.
inline uint32_t iteration_of(const Phase& phase) { return (phase.number + 1) / 2 - phase.late; }

// Iterations that do the same. One or two are before them: one makes gradients, to which the others add. What an
// iteration reads is made by itself, by the one before it, before the first of all (invariant), or is its own: an
// input, or a part of an invariant that begins elsewhere.
struct Loop {
  uint32_t first = 0, last = 0;  // the first stands for those up to the last
  NodeId begin = 0, length = 0;  // the first node of the first, and how many nodes an iteration has
  uint32_t params = 0;           // how far apart the parameters of two iterations are
  std::vector<NodeId> late;      // in order: those of the iteration before the one that their phase belongs to
  // By own value: that of each iteration from the first to the last. Inputs, or parts of an invariant.
  std::vector<std::vector<ValueId>> own;
  // What follows the loop and reads what an iteration before the last one has made, as a sum of all losses.
  struct Read {
    NodeId node;
    size_t operand;
    uint32_t iteration;
    NodeId offset;
    ValueId result;  // of that node of the iteration
  };
  std::vector<Read> reads;  // by node and operand

  uint32_t iterations() const { return last - first + 1; }
  NodeId begin_of(uint32_t iteration) const { return begin + (iteration - first) * length; }
  bool is_in(uint32_t iteration, NodeId node) const {
    return node >= begin_of(iteration) && node < begin_of(iteration + 1);
  }
  bool is_between(NodeId node) const { return node >= begin_of(first + 1) && node < begin_of(last); }
};

// REQUIRES: as recorded. Nothing where the graph has no stages, or too few iterations are alike.
std::optional<Loop> find_loop(const Graph& graph);

}  // namespace spmdx
