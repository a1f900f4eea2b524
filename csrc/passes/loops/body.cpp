// SPDX-License-Identifier: Apache-2.0
// Body: what the first iteration reads is told apart by what the last one reads instead.
#include "passes/loops/body.h"

#include <algorithm>
#include <map>
#include <unordered_set>

#include "passes/loops/any_start.h"

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
    if (!find_reads() || !merges_alike() || !is_in_order() || !is_closed() || !keeps_its_own()) return std::nullopt;
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
      if (node.recorded.phase.number)
        iteration = iteration_of(node.recorded.phase);
      else
        for (ValueId r = 0; r < node.call->outputs.size(); ++r) iteration = std::min(iteration, read[node.output + r]);
      if (iteration > loop_.last) iteration = kNone;
      for (const ValueId value : node.inputs) read[value] = std::min(read[value], iteration);
    }
  }

  void find_own_values() {
    std::vector<uint32_t> input_of(rolled_.whole->values.size(), kNone);
    for (uint32_t i = 0; i < rolled_.whole->inputs.size(); ++i) input_of[rolled_.whole->inputs[i].value] = i;
    std::vector<bool> own(graph_.values.size(), false);
    for (size_t i = 0; i < loop_.own.size(); ++i) {
      const ValueId first = loop_.own[i].front();
      if (input_of[first] == kNone) {
        std::vector<NodeId>& parts = body_.parts[rolled_.whole->values[first].producer];
        for (const ValueId value : loop_.own[i]) parts.push_back(rolled_.whole->values[value].producer);
        continue;
      }
      const ValueId value = graph_.inputs[input_of[first]].value;
      body_.own.emplace(value, i);
      last_own_.emplace(value, graph_.inputs[input_of[loop_.own[i].back()]].value);
      own[value] = true;
    }
    // Before the first iteration passes may have moved them.
    for (NodeId id = 0; id < graph_.nodes.size(); ++id) {
      const Node& node = graph_.nodes[id];
      if (body_.iterations[id] >= loop_.first || !is_collective(node) || node.inputs.empty()) continue;
      if (!std::ranges::all_of(node.inputs, [&](ValueId v) { return own[v]; })) continue;
      repeated_[id] = true;
      for (ValueId r = 0; r < node.call->outputs.size(); ++r) own[node.output + r] = true;
    }
  }

  // Those of the first and the last iteration that were recorded as the same node of it.
  void pair_recorded_nodes() {
    std::map<uint32_t, std::pair<std::vector<NodeId>, std::vector<NodeId>>> nodes;
    for (NodeId id = 0; id < graph_.nodes.size(); ++id) {
      const uint32_t in_loop = graph_.nodes[id].recorded.in_loop;
      if (in_loop == kNone) continue;
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
    const bool equal = a.call == b.call || *a.call == *b.call;
    return (equal || (a.call->start && b.call->start && same_kind(*a.call, *b.call))) &&
           a.inputs.size() == b.inputs.size() &&
           (!a.call->num_params || apart(a.param, b.param, loop_.params, loop_.iterations() - 1)) &&
           have_equal_starts(a, b, equal);
  }

  bool have_equal_starts(const Node& a, const Node& b, bool equal) const {
    if (a.starts_of == kNone || b.starts_of == kNone) return equal && a.starts_of == b.starts_of;
    if (a.starts_of == b.starts_of) return equal;
    const std::vector<NodeId> starts = starts_of(a);
    if (starts.back() != b.starts_of) return false;
    const Graph& whole = *rolled_.whole;
    if (std::ranges::all_of(starts, [&](NodeId id) { return *whole.nodes[id].call == *whole.nodes[a.starts_of].call; }))
      return equal;
    return takes_any_start(graph_, a, whole.nodes[a.starts_of]) && takes_any_start(graph_, b, whole.nodes[b.starts_of]);
  }

  // Of each iteration, if what the first one has is its own.
  std::vector<NodeId> starts_of(const Node& first) const {
    std::vector<NodeId> starts;
    for (uint32_t i = loop_.first; i <= loop_.last; ++i)
      starts.push_back(in_iteration(loop_, body_, first.starts_of, i));
    return starts;
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
    const NodeId partner = partner_[id];
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId value = node.inputs[i];
      if (partner != kNone) {
        const ValueId last = graph_.nodes[partner].inputs[i];
        if (in_body(value) || body_.own.contains(value) ? !correspond(value, last) : !tell_operand(value, last))
          return false;
      } else if (!in_body(value) && !body_.own.contains(value) && (!is_input(value) || !note_invariant(value))) {
        return false;
      }
    }
    return true;
  }

  // Whether the last iteration has made this value as the first has made that one, wherever they lie.
  bool correspond(ValueId first, ValueId last) const {
    first = before_moves(first);
    last = before_moves(last);
    if (body_.own.contains(first)) return last_own_.at(first) == last;
    const NodeId a = graph_.values[first].producer, b = graph_.values[last].producer;
    if (a == kNone || b == kNone) return first == last;
    const Node &one = graph_.nodes[a], &other = graph_.nodes[b];
    if (first - one.output != last - other.output) return false;
    if (partner_[a] != kNone || first_of_[b] != kNone) return partner_[a] == b;
    if (first == last) return !in_body(first);
    return in_body(first) && have_equal_calls(a, b) &&
           std::ranges::equal(one.inputs, other.inputs, [&](ValueId x, ValueId y) { return correspond(x, y); });
  }
  ValueId before_moves(ValueId value) const {
    for (NodeId id = graph_.values[value].producer; id != kNone && is_collective(graph_.nodes[id]);
         id = graph_.values[value].producer)
      value = graph_.nodes[id].inputs[value - graph_.nodes[id].output];
    return value;
  }

  bool tell_operand(ValueId first, ValueId last) {
    if (first == last) return note_invariant(first);
    if (iteration_of_value(last) != loop_.first) return may_repeat(first, last) && repeat(first, last);
    const Value &a = graph_.values[first], &b = graph_.values[last];
    return a.sharding == b.sharding && a.type == b.type && !invariant_.contains(first) &&
           body_.carried.try_emplace(first, last).first->second == last;
  }
  bool note_invariant(ValueId value) {
    invariant_.insert(value);
    return !body_.carried.contains(value) && !in_body(value) && !body_.own.contains(value);
  }

  // What is made before the iterations for each of them anew, as gathered parameters that are not kept.
  bool may_repeat(ValueId first, ValueId last) const {
    if (first == last) return !in_body(first) && !body_.own.contains(first) && !body_.carried.contains(first);
    if (body_.own.contains(first)) return last_own_.at(first) == last;
    const NodeId a = graph_.values[first].producer, b = graph_.values[last].producer;
    if (a == kNone || b == kNone || body_.iterations[a] >= loop_.first) return false;
    const Node &one = graph_.nodes[a], &other = graph_.nodes[b];
    if (!have_equal_calls(a, b) || one.sub_axes != other.sub_axes || first - one.output != last - other.output)
      return false;
    for (ValueId r = 0; r < one.call->outputs.size(); ++r)
      if (graph_.values[one.output + r].sharding != graph_.values[other.output + r].sharding) return false;
    return std::ranges::equal(one.inputs, other.inputs, [&](ValueId x, ValueId y) { return may_repeat(x, y); });
  }
  bool repeat(ValueId first, ValueId last) {
    if (body_.own.contains(first)) return true;
    if (first == last) return note_invariant(first);
    const NodeId a = graph_.values[first].producer, b = graph_.values[last].producer;
    if (partner_[a] != kNone && partner_[a] != b) return false;
    for (ValueId r = 0; r < graph_.nodes[a].call->outputs.size(); ++r)
      if (invariant_.contains(graph_.nodes[a].output + r)) return false;  // a pass took two values for one
    repeated_[a] = true;
    partner_[a] = b;
    first_of_[b] = a;
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

  // Whether parts that passes took for one, as they begin alike in the first iteration, do so in all.
  bool merges_alike() const {
    const auto starts = [&](NodeId recorded) {
      std::vector<int64_t> found;
      add_starts(*rolled_.whole->nodes[recorded].call, found);
      return found;
    };
    return std::ranges::all_of(graph_.merged_starts, [&](const auto& pair) {
      if (pair.second == kNone) return true;
      for (uint32_t i = loop_.first; i <= loop_.last; ++i)
        if (starts(in_iteration(loop_, body_, pair.first, i)) != starts(in_iteration(loop_, body_, pair.second, i)))
          return false;
      return true;
    });
  }

  // Whether the iterations up to the last one can come before what is not of them.
  bool is_in_order() const {
    for (NodeId id = 0; id < graph_.nodes.size(); ++id)
      for (const ValueId value : graph_.nodes[id].inputs)
        if (body_.iterations[id] < loop_.last && !is_input(value) && iteration_of_value(value) >= loop_.last)
          return false;
    return true;
  }

  // Whether the last iteration alone reads what the first one makes, and as the first reads what is made before it.
  bool is_closed() const {
    for (NodeId id = 0; id < graph_.nodes.size(); ++id) {
      if (body_.iterations[id] == loop_.first) continue;
      const Node& node = graph_.nodes[id];
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        const ValueId value = node.inputs[i];
        if (iteration_of_value(value) != loop_.first) continue;
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
      if (iteration_of_value(value) != loop_.first) continue;
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
      if (iteration_of_value(value) == loop_.first) needed[graph_.values[value].producer] = true;
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
    Body::Member member{.node = id, .starts_of = {}};
    if (partner_[id] != kNone) {
      const Node& last = graph_.nodes[partner_[id]];
      member.own_params = node.call->num_params && node.param != last.param;
      if (node.starts_of != last.starts_of) member.starts_of = starts_of(node);
    } else if (node.call->num_params || node.starts_of != kNone) {
      return false;
    }
    body_.members.push_back(std::move(member));
    return true;
  }

  const Graph& graph_;
  const Rolled& rolled_;
  const Loop& loop_;
  std::unordered_map<ValueId, ValueId> last_own_;  // by own input of the first iteration: that of the last
  std::vector<NodeId> partner_, first_of_;         // by node of the body, that of the last iteration; and the reverse
  std::vector<bool> repeated_;                     // by node that is made before the iterations
  std::unordered_set<ValueId> invariant_;
  Body body_;
};

}  // namespace

NodeId in_iteration(const Loop& loop, const Body& body, NodeId recorded, uint32_t iteration) {
  if (const auto parts = body.parts.find(recorded); parts != body.parts.end())
    return parts->second[iteration - loop.first];
  return loop.is_in(loop.first, recorded) ? recorded + (iteration - loop.first) * loop.length : recorded;
}

std::optional<Body> find_body(const Graph& graph, const Rolled& rolled) { return Pairing(graph, rolled).run(); }

}  // namespace spmdx
