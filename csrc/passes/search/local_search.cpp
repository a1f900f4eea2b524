// SPDX-License-Identifier: Apache-2.0
// Local search: best responses of single nodes, and chains that carry one layout over many nodes at once.
#include <algorithm>
#include <deque>
#include <iterator>
#include <set>

#include "graph/rewrite.h"
#include "passes/search/assignment.h"
#include "passes/search/search.h"
#include "passes/settings/limits.h"

namespace spmdx {
namespace {

class LocalSearch {
 public:
  explicit LocalSearch(Assignment& assignment) : assignment_(assignment), graph_(assignment.graph()) {}

  void run() {
    std::vector<NodeId> all;
    for (NodeId node = 0; node < graph_.nodes.size(); ++node) all.push_back(node);
    descend(all);
    assignment_.forget();
    for (int round = 0; round < kLimits.rounds; ++round)
      if (!try_chains() && !try_neighbours()) return;
  }

 private:
  // Takes the choice that costs least; false if that is what is decided already.
  bool take_best_response(NodeId node) {
    ChoiceRef best = assignment_.choice_ref(node);
    const int64_t before = assignment_.cost_around(node, *best);
    int64_t least = before;
    if (before == 0) return false;
    for (const ChoiceRef& choice : assignment_.choices(node)) {
      const int64_t now = assignment_.cost_around(node, *choice);
      if (now >= least) continue;
      best = choice;
      least = now;
    }
    if (least == before) return false;
    assignment_.decide(node, best);
    return true;
  }

  void add_neighbours(NodeId node, std::set<NodeId>& to) const {
    const OpContext op = assignment_.context(node);
    for (size_t t = 0; t < op.num_tensors(); ++t) {
      const ValueId value = assignment_.value(node, t);
      if (graph_.values[value].producer != kNone) to.insert(graph_.values[value].producer);
      for (NodeId user : assignment_.users(value)) to.insert(user);
    }
  }

  // Asks these nodes, and the neighbours of those that change, until none changes any more.
  void descend(const std::vector<NodeId>& nodes) {
    std::set<NodeId> now(nodes.begin(), nodes.end());
    for (size_t answer = 0; answer < kLimits.answers && !now.empty(); ++answer) {
      std::set<NodeId> next;
      for (NodeId node : now)
        if (take_best_response(node)) add_neighbours(node, next);
      now = std::move(next);
    }
  }

  // Makes `node` have or want `layout` for one of its tensors, as cheaply as it can. False where it cannot.
  bool adopt(NodeId node, size_t tensor, const ShardingRef& layout) {
    const size_t inputs = graph_.nodes[node].inputs.size();
    const auto of = [&](const Choice& choice) {
      return tensor < inputs ? choice.placement.inputs[tensor] : choice.placement.outputs[tensor - inputs];
    };
    ChoiceRef best;
    int64_t least = 0;
    for (const ChoiceRef& choice : assignment_.choices(node, tensor, layout)) {
      if (of(*choice) != layout) continue;
      const int64_t now = assignment_.cost_around(node, *choice);
      if (best && now >= least) continue;
      best = choice;
      least = now;
    }
    if (!best) return false;
    assignment_.decide(node, best);
    return true;
  }

  struct Step {
    NodeId node;
    size_t tensor;
    ShardingRef layout;
  };

  // Asks the producers of the operands of a node that changed to make them as it now wants them.
  void ask_producers(NodeId node, const Choice& before, std::deque<Step>& queue) const {
    const Choice& now = assignment_.choice(node);
    const std::vector<ValueId>& operands = graph_.nodes[node].inputs;
    for (size_t i = 0; i < operands.size(); ++i) {
      const NodeId producer = graph_.values[operands[i]].producer;
      const ShardingRef wanted = now.placement.inputs[i];
      if (producer == kNone || wanted == before.placement.inputs[i]) continue;
      if (assignment_.available(operands[i]) == wanted) continue;
      if (assignment_.produced(operands[i])->partial && !wanted->partial)
        tell_readers(operands[i], wanted,
                     queue);  // a sum that is made for one reader serves the others, too
      else
        queue.push_back(
            {producer, graph_.nodes[producer].inputs.size() + operands[i] - graph_.nodes[producer].output, wanted});
    }
  }

  // Asks all neighbours of a node that changed to follow it.
  void tell_neighbours(NodeId node, const Choice& before, std::deque<Step>& queue) const {
    ask_producers(node, before, queue);
    const Choice& now = assignment_.choice(node);
    for (size_t r = 0; r < now.placement.outputs.size(); ++r)
      if (now.placement.outputs[r] != before.placement.outputs[r])
        tell_readers(graph_.nodes[node].output + static_cast<ValueId>(r),
                     assignment_.available(graph_.nodes[node].output + static_cast<ValueId>(r)), queue);
  }

  // Whether a reader of `value`, partial as in `layout`, has another operand that is partial likewise.
  bool joins(NodeId user, ValueId value, const ShardingRef& layout) const {
    const std::vector<ValueId>& operands = graph_.nodes[user].inputs;
    return std::any_of(operands.begin(), operands.end(), [&](ValueId other) {
      const ShardingRef made = assignment_.produced(other);
      return other != value && made->partial == layout->partial && made->reduction == layout->reduction;
    });
  }

  // To every reader that wants another layout.
  void tell_readers(ValueId value, const ShardingRef& layout, std::deque<Step>& queue) const {
    for (NodeId user : assignment_.users(value)) {
      const std::vector<ValueId>& operands = graph_.nodes[user].inputs;
      for (size_t i = 0; i < operands.size(); ++i)
        if (operands[i] == value && assignment_.choice(user).placement.inputs[i] != layout)
          queue.push_back({user, i, layout});
    }
  }

  void tell_joining_readers(ValueId sum, std::deque<Step>& queue) const {
    const ShardingRef made = assignment_.produced(sum);
    std::deque<Step> all;
    tell_readers(sum, made, all);
    std::copy_if(all.begin(), all.end(), std::back_inserter(queue),
                 [&](const Step& step) { return joins(step.node, sum, made); });
  }

  // Which nodes follow one that changed: all neighbours; all but the other readers of a value that is made for one
  // reader; those that add to a partial sum.
  enum class Spread { all, branch, joins };

  // The state before some decisions.
  struct Before {
    size_t mark;
    int64_t total, moving;
  };
  Before before() const { return {assignment_.mark(), assignment_.total(), assignment_.moving()}; }

  // Nodes in `touched` have changed already.
  void spread_out(std::deque<Step> queue, Spread spread, std::set<NodeId> touched) {
    while (!queue.empty() && touched.size() < kLimits.chain) {
      const Step step = queue.front();
      queue.pop_front();
      if (touched.contains(step.node)) continue;
      const ChoiceRef old = assignment_.choice_ref(step.node);
      if (!adopt(step.node, step.tensor, step.layout)) continue;
      touched.insert(step.node);
      const bool made_for_one = spread == Spread::branch && step.tensor >= graph_.nodes[step.node].inputs.size();
      if (spread != Spread::joins)
        made_for_one ? ask_producers(step.node, *old, queue) : tell_neighbours(step.node, *old, queue);
      else if (const ValueId sum = graph_.nodes[step.node].output; assignment_.produced(sum)->partial)
        tell_joining_readers(sum, queue);
    }
    std::set<NodeId> asked = touched;
    for (NodeId node : touched) add_neighbours(node, asked);
    descend({asked.begin(), asked.end()});
  }

  // Undoes the decisions since then unless the result is better.
  bool keep(const Before& since, bool better) {
    better ? assignment_.forget() : assignment_.undo(since.mark);
    return better;
  }

  // One chain of changes, kept only if the total falls.
  bool try_chain(std::deque<Step> queue, Spread spread) {
    const Before since = before();
    spread_out(std::move(queue), spread, {});
    return keep(since, assignment_.total() < since.total);
  }

  // What makes two places of a program alike: the op that makes the value, and the layouts it has and should have.
  uint64_t likeness(ValueId value, const ShardingRef& wanted, bool forward) const {
    const NodeId producer = graph_.values[value].producer;
    uint64_t h = hash_combine(forward, producer == kNone ? 0 : graph_.nodes[producer].call->hash);
    for (NodeId user : assignment_.users(value)) h = hash_combine(h, graph_.nodes[user].call->hash);
    h = hash_combine(h, reinterpret_cast<uintptr_t>(assignment_.produced(value).get()));
    return hash_combine(h, reinterpret_cast<uintptr_t>(wanted.get()));
  }

  bool attempt(uint64_t like, std::deque<Step> queue, Spread spread = Spread::all) {
    int& failures = failures_[like];
    if (queue.empty() || failures >= kLimits.failures) return false;
    const bool better = try_chain(std::move(queue), spread);
    failures = better ? 0 : failures + 1;
    return better;
  }

  // Three ways to save the moves of a value: its readers take it as it is made; they take it as one summand of several;
  // its producer makes it as a reader wants it.
  bool try_chains_at(ValueId value) {
    const ShardingRef made = assignment_.produced(value), available = assignment_.available(value);
    std::deque<Step> queue;
    tell_readers(value, available, queue);
    if (attempt(likeness(value, available, true), std::move(queue))) return true;
    if (made->partial) {
      std::deque<Step> readers;
      tell_readers(value, made, readers);
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

  bool is_small() const {
    size_t computing = 0;
    for (NodeId node = 0; node < graph_.nodes.size(); ++node)
      computing += assignment_.context(node).rule->linearity != Linearity::movement;
    return computing <= kLimits.nodes_that_try_neighbours;
  }

  // Neighbour moves, in a small graph: a node takes a strategy that no tensor suggests; its neighbours follow, or take
  // their best responses.
  bool try_neighbours() {
    if (assignment_.moving() == 0 || !is_small()) return false;
    bool better = false;
    for (NodeId node = 0; node < graph_.nodes.size(); ++node)
      for (const ChoiceRef& choice : assignment_.neighbours(node))
        better |= try_neighbour(node, choice, Spread::all) || try_neighbour(node, choice, Spread::branch) ||
                  try_neighbour_alone(node, choice);
    return better;
  }

  // A smaller total is not enough: something has to move less, as sharing work out may gain nothing in truth.
  bool keep_neighbour(const Before& since) {
    return keep(since, assignment_.total() < since.total && assignment_.moving() + kLimits.rounding_ns < since.moving);
  }

  bool try_neighbour(NodeId node, const ChoiceRef& choice, Spread spread) {
    const Before since = before();
    const ChoiceRef old = assignment_.choice_ref(node);
    assignment_.decide(node, choice);
    std::deque<Step> queue;
    tell_neighbours(node, *old, queue);
    for (size_t i = 0; spread == Spread::all && i < graph_.nodes[node].inputs.size(); ++i)
      if (choice->placement.inputs[i] != old->placement.inputs[i])
        tell_readers(graph_.nodes[node].inputs[i], choice->placement.inputs[i], queue);  // one move serves all readers
    spread_out(std::move(queue), spread, {node});
    return keep_neighbour(since);
  }

  bool try_neighbour_alone(NodeId node, const ChoiceRef& choice) {
    const Before since = before();
    assignment_.decide(node, choice);
    std::set<NodeId> around;
    add_neighbours(node, around);
    around.erase(node);  // asked now, it would take its old choice again
    descend({around.begin(), around.end()});
    return keep_neighbour(since);
  }

  Assignment& assignment_;
  const Graph& graph_;
  std::vector<ValueId> order_ = in_order();
  std::unordered_map<uint64_t, int> failures_;
};

}  // namespace

void search_locally(Assignment& assignment) { LocalSearch(assignment).run(); }

}  // namespace spmdx
