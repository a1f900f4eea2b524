// SPDX-License-Identifier: Apache-2.0
// Body: what the first iteration reads is told apart by what the last one reads instead.
#include "passes/loops/body.h"

#include <algorithm>
#include <map>

namespace spmdx {
namespace {

class Pairing {
 public:
  Pairing(const Graph& graph, const Rolled& rolled)
      : graph_(graph),
        rolled_(rolled),
        loop_(rolled.loop),
        partner_(graph.nodes.size(), kNone),
        first_of_(graph.nodes.size(), kNone),
        repeated_(graph.nodes.size(), false) {}

  std::optional<Body> run() {
    place_nodes();
    find_own_values();
    pair_recorded_nodes();
    for (NodeId id = 0; id < graph_.nodes.size(); ++id)
      if (body_.iterations[id] == loop_.first && !tell_operands(id)) return std::nullopt;
    if (!find_reads() || !is_in_order() || !is_closed() || !keeps_its_own()) return std::nullopt;
    return collect() ? std::optional(std::move(body_)) : std::nullopt;
  }

 private:
  // What passes have added without a phase belongs to the first that reads it.
  void place_nodes() {
    std::vector<uint32_t> read(graph_.values.size(), kNone);
    body_.iterations.resize(graph_.nodes.size());
    for (NodeId id = static_cast<NodeId>(graph_.nodes.size()); id-- > 0;) {
      const Node& node = graph_.nodes[id];
      uint32_t& iteration = body_.iterations[id] = kNone;
      if (node.recorded.phase)
        iteration = iteration_of(node.recorded.phase);
      else
        for (ValueId r = 0; r < node.call->outputs.size(); ++r) iteration = std::min(iteration, read[node.output + r]);
      if (iteration > loop_.last) iteration = kNone;
      for (const ValueId value : node.inputs) read[value] = std::min(read[value], iteration);
    }
  }

  void find_own_values() {
    std::vector<bool> own(graph_.values.size(), false);
    for (size_t i = 0; i < rolled_.own.size(); ++i) {
      const ValueId value = value_of(rolled_.own[i], rolled_.own[i].at.front());
      body_.own.emplace(value, i);
      own[value] = true;
    }
    // Before the first iteration passes may have moved them.
    for (NodeId id = 0; id < graph_.nodes.size(); ++id) {
      const Node& node = graph_.nodes[id];
      if (body_.iterations[id] >= loop_.first || !is_collective(node) || body_.own.contains(node.output)) continue;
      if (!std::ranges::all_of(node.inputs, [&](ValueId v) { return own[v]; })) continue;
      repeated_[id] = true;
      for (ValueId r = 0; r < node.call->outputs.size(); ++r) own[node.output + r] = true;
    }
  }
  ValueId value_of(const Rolled::Own& own, uint32_t at) const {
    return own.inputs ? graph_.inputs[at].value : graph_.outputs[at].value;
  }

  // Those of the first and the last iteration that were recorded as the same node of it.
  void pair_recorded_nodes() {
    std::map<uint32_t, std::pair<std::vector<NodeId>, std::vector<NodeId>>> nodes;
    for (NodeId id = 0; id < graph_.nodes.size(); ++id) {
      const uint32_t in_loop = graph_.nodes[id].recorded.in_loop;
      if (in_loop == kNone || loop_.makes_own[in_loop]) continue;
      if (body_.iterations[id] == loop_.first) nodes[in_loop].first.push_back(id);
      if (body_.iterations[id] == loop_.last) nodes[in_loop].second.push_back(id);
    }
    for (const auto& [in_loop, pair] : nodes) {
      if (pair.first.size() != pair.second.size()) continue;
      for (size_t i = 0; i < pair.first.size(); ++i) {
        if (!have_equal_calls(pair.first[i], pair.second[i])) continue;
        partner_[pair.first[i]] = pair.second[i];
        first_of_[pair.second[i]] = pair.first[i];
      }
    }
  }

  // How far two numbers of iterations may lie apart: not at all, or as those of the first and the last.
  static bool apart(uint32_t from, uint32_t to, uint32_t step, uint32_t times) {
    return from == to || to - from == step * times;
  }

  bool have_equal_calls(NodeId first, NodeId last) const {
    const Node &a = graph_.nodes[first], &b = graph_.nodes[last];
    const uint32_t times = loop_.iterations() - 1;
    return (a.call == b.call || *a.call == *b.call) && a.inputs.size() == b.inputs.size() &&
           (!a.call->num_params || apart(a.param, b.param, loop_.params, times)) &&
           (a.starts_of == kNone) == (b.starts_of == kNone) &&
           (a.starts_of == kNone || apart(a.starts_of, b.starts_of, loop_.length, times));
  }

  uint32_t iteration_of_value(ValueId value) const {
    const NodeId producer = graph_.values[value].producer;
    return producer == kNone ? 0 : body_.iterations[producer];
  }
  // Of the first iteration, or repeated in each although it is made before.
  bool in_body(ValueId value) const {
    const NodeId producer = graph_.values[value].producer;
    return producer != kNone && (body_.iterations[producer] == loop_.first || repeated_[producer]);
  }
  bool is_input(ValueId value) const { return graph_.values[value].producer == kNone; }

  // Whether it is known of each operand of a node of the first iteration where the others have it from.
  bool tell_operands(NodeId id) {
    const Node& node = graph_.nodes[id];
    if (body_.own.contains(node.output)) return true;  // the others have theirs
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId value = node.inputs[i];
      if (in_body(value) || body_.own.contains(value)) continue;
      if (partner_[id] == kNone) {
        if (!is_input(value) || !note_invariant(value)) return false;
      } else if (!tell_operand(value, graph_.nodes[partner_[id]].inputs[i])) {
        return false;
      }
    }
    return true;
  }

  bool tell_operand(ValueId first, ValueId last) {
    if (first == last) return note_invariant(first);
    if (iteration_of_value(last) != loop_.first) return may_repeat(first, last) && repeat(first, last);
    const Value &a = graph_.values[first], &b = graph_.values[last];
    return a.sharding == b.sharding && a.type == b.type && !invariant_.contains(first) && !body_.own.contains(last) &&
           body_.carried.try_emplace(first, last).first->second == last;
  }
  bool note_invariant(ValueId value) {
    invariant_.insert(value);
    return !body_.carried.contains(value);
  }

  // What is made before the iterations for each of them anew, as gathered parameters that are not kept.
  bool may_repeat(ValueId first, ValueId last) const {
    if (first == last) return !in_body(first) && !body_.own.contains(first) && !body_.carried.contains(first);
    if (const auto own = body_.own.find(first); own != body_.own.end())
      return value_of(rolled_.own[own->second], rolled_.own[own->second].at.back()) == last;
    const NodeId a = graph_.values[first].producer, b = graph_.values[last].producer;
    if (a == kNone || b == kNone || body_.iterations[a] >= loop_.first) return false;
    const Node &one = graph_.nodes[a], &other = graph_.nodes[b];
    if (!have_equal_calls(a, b) || one.sub_axes != other.sub_axes || first - one.output != last - other.output) return false;
    for (ValueId r = 0; r < one.call->outputs.size(); ++r)
      if (graph_.values[one.output + r].sharding != graph_.values[other.output + r].sharding) return false;
    return std::ranges::equal(one.inputs, other.inputs, [&](ValueId x, ValueId y) { return may_repeat(x, y); });
  }
  bool repeat(ValueId first, ValueId last) {
    if (body_.own.contains(first)) return true;
    if (first == last) return note_invariant(first);
    const NodeId a = graph_.values[first].producer, b = graph_.values[last].producer;
    if (partner_[a] != kNone && partner_[a] != b) return false;
    repeated_[a] = true;
    partner_[a] = b;
    const Node &one = graph_.nodes[a], &other = graph_.nodes[b];
    for (size_t i = 0; i < one.inputs.size(); ++i)
      if (!repeat(one.inputs[i], other.inputs[i])) return false;
    return true;
  }

  // Whether all that reads iterations after the loop is still there.
  bool find_reads() {
    size_t found = 0;
    for (NodeId id = 0; id < graph_.nodes.size(); ++id) {
      const Node& node = graph_.nodes[id];
      if (node.recorded.in_loop == kNone || node.recorded.in_loop < loop_.length) continue;
      const size_t first = node.recorded.in_loop - loop_.length;
      const NodeId recorded = loop_.reads[first].node;
      const Call& call = *rolled_.whole->nodes[recorded].call;
      if (!(*node.call == call) || body_.reads.contains(id)) return false;
      for (size_t i = first; i < loop_.reads.size() && loop_.reads[i].node == recorded; ++i, ++found) {
        const Loop::Read& read = loop_.reads[i];
        if (iteration_of_value(node.inputs[read.operand]) != loop_.first) return false;
        body_.reads[id].push_back({read.operand, read.iteration});
      }
    }
    return found == loop_.reads.size();
  }
  bool is_read(NodeId id, size_t operand) const {
    const auto at = body_.reads.find(id);
    return at != body_.reads.end() &&
           std::ranges::any_of(at->second, [&](const Body::Read& read) { return read.operand == operand; });
  }

  // Whether the iterations up to the last one can come before what is not of them.
  bool is_in_order() const {
    for (NodeId id = 0; id < graph_.nodes.size(); ++id)
      for (const ValueId value : graph_.nodes[id].inputs)
        if (body_.iterations[id] < loop_.last && !is_input(value) && iteration_of_value(value) >= loop_.last) return false;
    return true;
  }

  // Whether the last iteration alone reads what the first one makes, and as the first reads what is made before it.
  bool is_closed() const {
    for (NodeId id = 0; id < graph_.nodes.size(); ++id) {
      if (body_.iterations[id] == loop_.first) continue;
      const Node& node = graph_.nodes[id];
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        const ValueId value = node.inputs[i];
        if (iteration_of_value(value) != loop_.first || body_.own.contains(value)) continue;
        if (is_read(id, i)) continue;
        if (first_of_[id] == kNone) return false;
        const auto carried = body_.carried.find(graph_.nodes[first_of_[id]].inputs[i]);
        if (carried == body_.carried.end() || carried->second != value) return false;
      }
    }
    return true;
  }

  // Whether all outputs that it makes are made in each iteration.
  bool keeps_its_own() const {
    for (size_t i = 0; i < graph_.outputs.size(); ++i) {
      const ValueId value = graph_.outputs[i].value;
      if (rolled_.outputs[i] == kNone || iteration_of_value(value) != loop_.first || body_.own.contains(value)) continue;
      const NodeId made = rolled_.whole->values[rolled_.whole->outputs[rolled_.outputs[i]].value].producer;
      if (made == kNone || !loop_.is_in(loop_.first, made)) return false;
    }
    return true;
  }

  // What the first iteration makes for the next one and for the user, and all that this needs.
  bool collect() {
    std::vector<bool> needed(graph_.nodes.size(), false);
    for (const auto& [first, made] : body_.carried) needed[graph_.values[made].producer] = true;
    for (const auto& [id, reads] : body_.reads)
      for (const Body::Read& read : reads) needed[graph_.values[graph_.nodes[id].inputs[read.operand]].producer] = true;
    for (size_t i = 0; i < graph_.outputs.size(); ++i) {
      const ValueId value = graph_.outputs[i].value;
      if (rolled_.outputs[i] != kNone && iteration_of_value(value) == loop_.first && !body_.own.contains(value))
        needed[graph_.values[value].producer] = true;
    }
    for (NodeId id = static_cast<NodeId>(graph_.nodes.size()); id-- > 0;) {
      if (!needed[id]) continue;
      if (!add_member(id)) return false;
      for (const ValueId value : graph_.nodes[id].inputs)
        if (in_body(value) && !body_.own.contains(value)) needed[graph_.values[value].producer] = true;
    }
    std::reverse(body_.members.begin(), body_.members.end());
    return true;
  }

  bool add_member(NodeId id) {
    const Node& node = graph_.nodes[id];
    Body::Member member{id};
    if (partner_[id] != kNone) {
      const Node& last = graph_.nodes[partner_[id]];
      member.own_params = node.call->num_params && node.param != last.param;
      member.own_starts = node.starts_of != last.starts_of;
    } else if (node.call->num_params || node.starts_of != kNone) {
      return false;
    }
    body_.members.push_back(member);
    return true;
  }

  const Graph& graph_;
  const Rolled& rolled_;
  const Loop& loop_;
  std::vector<NodeId> partner_, first_of_;  // by node of the body, that of the last iteration; and the reverse
  std::vector<bool> repeated_;              // by node that is made before the iterations
  std::unordered_set<ValueId> invariant_;
  Body body_;
};

}  // namespace

std::optional<Body> find_body(const Graph& graph, const Rolled& rolled) { return Pairing(graph, rolled).run(); }

}  // namespace spmdx
