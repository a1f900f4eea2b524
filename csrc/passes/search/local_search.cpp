// SPDX-License-Identifier: Apache-2.0
// Local search: chains that start at the moves of values, until nothing helps any more.
#include <algorithm>
#include <set>

#include "graph/rewrite.h"
#include "passes/search/chain.h"
#include "passes/search/flows.h"
#include "passes/search/neighbour_moves.h"
#include "passes/search/search.h"
#include "passes/settings/limits.h"

namespace spmdx {
namespace {

class LocalSearch {
 public:
  explicit LocalSearch(Assignment& assignment)
      : assignment_(assignment), graph_(assignment.graph()), chain_(assignment) {}

  // Two starts lead to two plans: with other ops counted as long as they take, and counted in part. The better goes on.
  void run() {
    start(true);
    assignment_.count_other_ops_by_clock(false);
    const int64_t first_ns = assignment_.total() - assignment_.merged_starts_ns();
    const std::vector<ChoiceRef> first = assignment_.all_choices();
    start(false);
    if (first_ns <= assignment_.total() - assignment_.merged_starts_ns()) assignment_.restart(first);
    for (int round = 0; round < kLimits.rounds && Flows(assignment_, chain_).run(); ++round) improve();
  }

  // From what is decided, at what is moved, until so many costs were asked for.
  void improve_briefly(int64_t costs) {
    assignment_.count_other_ops_by_clock(false);
    last_cost_ = assignment_.effort().costs_asked + costs;
    chain_.settle(nodes_beside_moves());
    assignment_.forget();
    try_chains();
  }

 private:
  std::set<NodeId> nodes_beside_moves() const {
    std::set<NodeId> nodes;
    for (NodeId node = 0; node < graph_.nodes.size(); ++node)
      for (size_t r = 0; r < graph_.nodes[node].call->outputs.size(); ++r)
        if (assignment_.moves_ns(graph_.nodes[node].output + static_cast<ValueId>(r)) > 0) nodes.insert(node);
    return nodes;
  }

  void start(bool others_by_clock) {
    assignment_.restart({});
    assignment_.count_other_ops_by_clock(others_by_clock);
    failures_.clear();
    choose_greedily(assignment_);
    chain_.descend();
    assignment_.forget();
    improve();
  }

  void improve() {
    for (int round = 0; round < kLimits.rounds; ++round)
      if (!try_chains() && !try_neighbours(assignment_, chain_)) return;
  }

  // One chain of changes, kept only if the total falls.
  bool try_chain(Steps steps, Spread spread) {
    const Chain::Before since = chain_.before();
    chain_.spread_out(std::move(steps), spread, {});
    return chain_.keep(since, assignment_.total() + chain_.starts_saved(since) < since.total);
  }

  // What makes two places of a program alike: the op that makes the value, and the layouts it has and should have.
  uint64_t likeness(ValueId value, const ShardingRef& wanted, bool forward) const {
    const NodeId producer = graph_.values[value].producer;
    uint64_t h = hash_combine(forward, producer == kNone ? 0 : graph_.nodes[producer].call->hash);
    h = hash_combine(h, assignment_.readers_hash(value));
    h = hash_combine(h, reinterpret_cast<uintptr_t>(assignment_.produced(value).get()));
    return hash_combine(h, reinterpret_cast<uintptr_t>(wanted.get()));
  }

  bool attempt(uint64_t like, Steps steps, Spread spread = Spread::all) {
    int& failures = failures_[like];
    if (steps.empty() || failures >= kLimits.failures || assignment_.effort().costs_asked >= last_cost_) return false;
    const bool better = try_chain(std::move(steps), spread);
    failures = better ? 0 : failures + 1;
    return better;
  }

  // Three ways to save the moves of a value: its readers take it as it is made; they take it as one summand of several;
  // its producer makes it as a reader wants it.
  bool try_chains_at(ValueId value) {
    const ShardingRef made = assignment_.produced(value), available = assignment_.available(value);
    Steps steps;
    chain_.tell_readers(value, available, steps);
    if (attempt(likeness(value, available, true), std::move(steps))) return true;
    if (made->partial) {
      Steps readers;
      chain_.tell_readers(value, made, readers);
      if (attempt(hash_combine(likeness(value, made, true), 1), std::move(readers), Spread::joins)) return true;
    }
    const NodeId producer = graph_.values[value].producer;
    if (producer == kNone) return false;
    const size_t tensor = graph_.nodes[producer].inputs.size() + value - graph_.nodes[producer].output;
    for (const ShardingRef& wanted : assignment_.demands(value)) {
      if (wanted == made || assignment_.move_ns(value, made, wanted) == 0) continue;
      if (attempt(likeness(value, wanted, false), {{producer, tensor, wanted}})) return true;
    }
    return false;
  }

  // Values in an order that does not depend on how inputs are numbered.
  std::vector<ValueId> in_order() const {
    std::vector<ValueId> order;
    for (size_t input : inputs_by_use(graph_)) order.push_back(graph_.inputs[input].value);
    for (const Node& node : graph_.nodes)
      for (size_t r = 0; r < node.call->outputs.size(); ++r) order.push_back(node.output + static_cast<ValueId>(r));
    return order;
  }

  // The largest moves first.
  bool try_chains() {
    std::vector<ValueId> order = order_;
    std::stable_sort(order.begin(), order.end(),
                     [&](ValueId a, ValueId b) { return assignment_.moves_ns(a) > assignment_.moves_ns(b); });
    bool better = false;
    for (ValueId value : order)
      if (assignment_.moves_ns(value) > 0) better |= try_chains_at(value);
    return better;
  }

  Assignment& assignment_;
  const Graph& graph_;
  Chain chain_;
  std::vector<ValueId> order_ = in_order();
  std::unordered_map<uint64_t, int> failures_;
  int64_t last_cost_ = INT64_MAX;  // no chain is tried after so many
};

}  // namespace

void search_locally(Assignment& assignment) { LocalSearch(assignment).run(); }

void improve_briefly(Assignment& assignment, int64_t costs) { LocalSearch(assignment).improve_briefly(costs); }

}  // namespace spmdx
