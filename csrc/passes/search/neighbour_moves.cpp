// SPDX-License-Identifier: Apache-2.0
// Neighbour moves: kept is what moves less and takes less time.
#include "passes/search/neighbour_moves.h"

#include "passes/settings/limits.h"

namespace spmdx {
namespace {

class Neighbours {
 public:
  Neighbours(Assignment& assignment, Chain& chain)
      : assignment_(assignment), graph_(assignment.graph()), chain_(chain) {}

  bool run() {
    if (assignment_.moving() == 0 || !is_small()) return false;
    bool better = false;
    for (NodeId node = 0; node < graph_.nodes.size(); ++node)
      for (const ChoiceRef& choice : assignment_.neighbours(node))
        better |= try_neighbour(node, choice, Spread::all) || try_neighbour(node, choice, Spread::branch) ||
                  try_neighbour_alone(node, choice);
    return better;
  }

 private:
  bool is_small() const {
    size_t computing = 0;
    for (NodeId node = 0; node < graph_.nodes.size(); ++node)
      computing += assignment_.context(node).rule->linearity != Linearity::movement;
    return computing <= kLimits.nodes_that_try_neighbours;
  }

  // A smaller total is not enough: something has to move less, as sharing work out may gain nothing in truth.
  bool keep_neighbour(const Chain::Before& since) {
    return chain_.keep(since,
                       assignment_.total() < since.total && assignment_.moving() + kLimits.rounding_ns < since.moving);
  }

  bool try_neighbour(NodeId node, const ChoiceRef& choice, Spread spread) {
    const Chain::Before since = chain_.before();
    const ChoiceRef old = assignment_.choice_ref(node);
    assignment_.decide(node, choice);
    Steps steps;
    chain_.tell_neighbours(node, *old, steps);
    for (size_t i = 0; spread == Spread::all && i < graph_.nodes[node].inputs.size(); ++i)
      if (choice->placement.inputs[i] != old->placement.inputs[i])
        chain_.tell_readers(graph_.nodes[node].inputs[i], choice->placement.inputs[i],
                            steps);  // one move serves all readers
    chain_.spread_out(std::move(steps), spread, {node});
    return keep_neighbour(since);
  }

  bool try_neighbour_alone(NodeId node, const ChoiceRef& choice) {
    const Chain::Before since = chain_.before();
    assignment_.decide(node, choice);
    chain_.descend_around(node);  // asked now, the node itself would take its old choice again
    return keep_neighbour(since);
  }

  Assignment& assignment_;
  const Graph& graph_;
  Chain& chain_;
};

}  // namespace

bool try_neighbours(Assignment& assignment, Chain& chain) { return Neighbours(assignment, chain).run(); }

}  // namespace spmdx
