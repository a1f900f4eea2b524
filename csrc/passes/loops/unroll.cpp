// SPDX-License-Identifier: Apache-2.0
// Unroll: the members of the body, once for each iteration.
#include "passes/loops/unroll.h"

#include <unordered_set>
#include <utility>

#include "graph/rewrite.h"
#include "graph/starts.h"
#include "passes/loops/body.h"

namespace spmdx {
namespace {

class Unroller {
 public:
  Unroller(const Graph& graph, const Rolled& rolled, Body body)
      : graph_(graph),
        rolled_(rolled),
        loop_(rolled.loop),
        body_(std::move(body)),
        rewrite_(graph),
        before_(graph.values.size(), kNone),
        is_own_(graph.values.size(), false) {
    for (const auto& [value, place] : body_.own) is_own_[value] = true;
  }

  Graph run() {
    const size_t more = (loop_.iterations() - 2) * body_.members.size();
    rewrite_.to().nodes.reserve(graph_.nodes.size() + more);
    rewrite_.to().values.reserve(graph_.values.size() + more + more / 2);
    place_own_inputs();
    note_outputs();
    keep_nodes([&](uint32_t iteration) { return iteration < loop_.last; });
    keep_outputs(loop_.first);
    std::vector<std::pair<ValueId, ValueId>> first;  // what the body makes, as the first iteration makes it
    for (const Body::Member& member : body_.members)
      each_result(member, [&](ValueId v) { first.emplace_back(v, rewrite_.at(v)); });
    for (uint32_t iteration = loop_.first + 1; iteration < loop_.last; ++iteration) {
      add_iteration(iteration);
      keep_outputs(iteration);
    }
    std::unordered_set<ValueId> handed_on;
    for (const auto& [value, made] : body_.carried) handed_on.insert(made);
    for (const auto& [value, made] : first)
      if (!handed_on.contains(value)) rewrite_.map(value, made);
    keep_nodes([&](uint32_t iteration) { return iteration >= loop_.last; });
    return finish();
  }

 private:
  template <class Visit>
  void each_result(const Body::Member& member, const Visit& visit) const {
    const Node& node = graph_.nodes[member.node];
    for (ValueId r = 0; r < node.call->outputs.size(); ++r) visit(node.output + r);
  }

  // Only those of two iterations were read so far.
  void place_own_inputs() {
    const Graph& whole = *rolled_.whole;
    input_of_.resize(whole.values.size(), kNone);
    for (uint32_t i = 0; i < whole.inputs.size(); ++i) input_of_[whole.inputs[i].value] = i;
    for (const auto& [value, place] : body_.own) {
      const std::vector<ValueId>& own = loop_.own[place];
      for (size_t i = 1; i + 1 < own.size(); ++i)
        rewrite_.to().values[input(own[i])].sharding = graph_.values[value].sharding;
    }
  }
  // Of the whole, as it is in the new graph.
  ValueId input(ValueId of_whole) const { return rewrite_.at(graph_.inputs[input_of_[of_whole]].value); }

  template <class Wanted>
  void keep_nodes(const Wanted& wanted) {
    for (NodeId id = 0; id < graph_.nodes.size(); ++id) {
      if (!wanted(body_.iterations[id])) continue;
      const Node& node = graph_.nodes[id];
      std::vector<ValueId> operands = rewrite_.operands(node);
      if (const auto read = read_.find(id); read != read_.end())
        for (const auto& [operand, value] : read->second) operands[operand] = value;
      rewrite_.keep(node, std::move(operands));
    }
  }

  void add_iteration(uint32_t iteration) {
    for (const auto& [value, made] : body_.carried) before_[value] = rewrite_.at(made);
    for (const Body::Member& member : body_.members) {
      const Node& node = graph_.nodes[member.node];
      std::vector<ValueId> operands;
      for (const ValueId value : node.inputs) operands.push_back(read_by(iteration, value));
      rewrite_.keep(node, std::move(operands));
      renumber(rewrite_.to().nodes.back(), member, iteration - loop_.first);
    }
  }

  ValueId read_by(uint32_t iteration, ValueId value) const {
    if (before_[value] != kNone) return before_[value];
    return is_own_[value] ? input(loop_.own[body_.own.at(value)][iteration - loop_.first]) : rewrite_.at(value);
  }

  void renumber(Node& node, const Body::Member& member, uint32_t later) const {
    if (member.own_params) node.param += later * loop_.params;
    if (!member.starts_of.empty()) begin_at(node, member.starts_of[later]);
    if (iteration_of(node.recorded.phase) == loop_.first) node.recorded.phase.number += 2 * later;
  }

  // With the start of this recorded node.
  void begin_at(Node& node, NodeId recorded) const {
    const CallRef &before = rolled_.whole->nodes[node.starts_of].call, &now = rolled_.whole->nodes[recorded].call;
    node.starts_of = recorded;
    if (!node.call->start || before == now || *before == *now) return;
    node.call = node.call == before ? now : with_starts_of(*node.call, *now);
  }

  // ---- what the user keeps ----

  // Of the first iteration: where its nodes make what, and which output of the rolled program that is.
  void note_outputs() {
    const Graph& whole = *rolled_.whole;
    kept_.resize(whole.outputs.size(), Output{.value = kNone});
    std::unordered_map<ValueId, size_t> of_first;
    for (size_t i = 0; i < rolled_.outputs.size(); ++i) of_first.emplace(whole.outputs[rolled_.outputs[i]].value, i);
    of_iteration_.resize(loop_.iterations());
    for (uint32_t i = 0; i < whole.outputs.size(); ++i) {
      const NodeId made = whole.values[whole.outputs[i].value].producer;
      if (made == kNone || made < loop_.begin || made >= loop_.begin_of(loop_.last)) continue;
      const NodeId offset = (made - loop_.begin) % loop_.length;
      const ValueId value =
          whole.nodes[loop_.begin + offset].output + whole.outputs[i].value - whole.nodes[made].output;
      of_iteration_[(made - loop_.begin) / loop_.length].emplace_back(i, of_first.at(value));
    }
  }

  void keep_outputs(uint32_t iteration) {
    for (const auto& [output, rolled] : of_iteration_[iteration - loop_.first])
      keep_output(output, graph_.outputs[rolled]);
    for (const auto& [id, reads] : body_.reads)
      for (const Body::Read& read : reads)
        if (read.iteration == iteration)
          read_[id].emplace_back(read.operand, rewrite_.at(graph_.nodes[id].inputs[read.operand]));
  }

  void keep_output(uint32_t output, const Output& of_rolled) {
    kept_[output] = of_rolled;
    kept_[output].value = rewrite_.at(of_rolled.value);
  }

  Graph finish() {
    for (size_t i = 0; i < rolled_.outputs.size(); ++i)
      if (kept_[rolled_.outputs[i]].value == kNone) keep_output(rolled_.outputs[i], graph_.outputs[i]);
    Graph result = rewrite_.finish();
    result.outputs = std::move(kept_);
    result.left_out = {};
    merge_starts(result);
    return result;
  }

  // What was taken for equal in the first iteration is so in the others.
  void merge_starts(Graph& result) const {
    const auto pairs = result.merged_starts;
    for (const auto& [gone, kept] : pairs)
      for (uint32_t iteration = loop_.first + 1; iteration < loop_.last; ++iteration) {
        const NodeId one = in_iteration(loop_, body_, gone, iteration),
                     other = kept == kNone ? kNone : in_iteration(loop_, body_, kept, iteration);
        if (one != gone || other != kept) result.merged_starts.emplace_back(one, other);
      }
  }

  const Graph& graph_;
  const Rolled& rolled_;
  const Loop& loop_;
  const Body body_;
  Rewrite rewrite_;
  std::vector<uint32_t> input_of_;  // by value of the whole
  std::vector<ValueId> before_;     // by value that is carried: what the iteration before has made
  std::vector<bool> is_own_;        // by value
  std::unordered_map<NodeId, std::vector<std::pair<size_t, ValueId>>> read_;  // by node that follows: its operands
  std::vector<Output> kept_;                                                  // by output of the whole
  std::vector<std::vector<std::pair<uint32_t, size_t>>> of_iteration_;
};

}  // namespace

bool unroll(Graph& graph, const Rolled& rolled) {
  std::optional<Body> body = find_body(graph, rolled);
  if (!body) return false;
  graph = Unroller(graph, rolled, std::move(*body)).run();
  return true;
}

}  // namespace spmdx
