// SPDX-License-Identifier: Apache-2.0
// Loop: every iteration is compared with the first one, node by node.
#include "passes/loops/loop.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "graph/starts.h"

namespace spmdx {
namespace {

constexpr uint32_t kFewest = 4;       // iterations that are worth it
constexpr uint32_t kLatestFirst = 3;  // the first two may both be others, as where a sum begins later than gradients

// A result of a node of an iteration.
struct At {
  NodeId offset = 0;
  ValueId result = 0;
  bool operator==(const At&) const = default;
};

class Finder {
 public:
  explicit Finder(const Graph& graph) : graph_(graph), input_of_(graph.values.size(), nullptr) {
    for (const Input& input : graph.inputs) input_of_[input.value] = &input;
    for (const Constraint& constraint : graph.constraints) constraints_.emplace(constraint.value, &constraint);
  }

  std::optional<Loop> run() {
    if (!find_bounds()) return std::nullopt;
    take_late_nodes();
    note_what_is_seen();
    for (uint32_t first = 2; first <= kLatestFirst; ++first)
      if (find_from(first)) return std::move(loop_);
    return std::nullopt;
  }

 private:
  bool find_from(uint32_t first) {
    if (first + kFewest >= begins_.size()) return false;
    loop_ = {};
    loop_.first = loop_.last = first;
    loop_.begin = begins_[first];
    loop_.length = begins_[first + 1] - begins_[first];
    loop_.late = late_;
    starts_vary_.assign(loop_.length, false);
    roles_.assign(graph_.values.size(), {});
    owned_.clear();
    if (loop_.length == 0 || seen_[first].keeps_state) return false;
    while (loop_.last + 2 < begins_.size() && is_alike(loop_.last + 1)) {
      ++loop_.last;
      if (seen_[loop_.last] != seen_[first]) break;  // others may not follow it
    }
    if (loop_.iterations() < kFewest) return false;
    std::erase_if(loop_.own, [&](const std::vector<ValueId>& own) { return own.size() < loop_.iterations(); });
    for (auto& own : loop_.own) own.resize(loop_.iterations());
    find_reads();
    return tells_parts_apart() && own_inputs_are_read_in_turn();
  }

  // Those between the first and the last one by their iterations and nothing else: where they lie is decided by what
  // the first one reads.
  bool own_inputs_are_read_in_turn() const {
    std::vector<uint32_t> reader(graph_.values.size(), 0);  // of an own input the iteration
    for (const std::vector<ValueId>& own : loop_.own)
      for (uint32_t i = 1; i + 1 < own.size(); ++i)
        if (input_of_[own[i]]) reader[own[i]] = loop_.first + i;
    for (NodeId id = 0; id < graph_.nodes.size(); ++id)
      for (const ValueId value : graph_.nodes[id].inputs)
        if (reader[value] && (id < begins_[reader[value]] || id >= begins_[reader[value] + 1])) return false;
    return std::ranges::none_of(graph_.outputs, [&](const Output& output) { return reader[output.value] > 0; });
  }

  // Parts that begin alike in the first and in the last iteration would become one, as if all began there.
  bool tells_parts_apart() const {
    for (NodeId offset = 0; offset < loop_.length; ++offset)
      if (starts_vary_[offset] &&
          *graph_.nodes[loop_.begin + offset].call == *graph_.nodes[begins_[loop_.last] + offset].call)
        return false;
    return std::ranges::none_of(loop_.own, [&](const std::vector<ValueId>& own) {
      const NodeId first = graph_.values[own.front()].producer, last = graph_.values[own.back()].producer;
      return first != kNone && *graph_.nodes[first].call == *graph_.nodes[last].call;
    });
  }

  bool find_bounds() {
    uint32_t phase = 0, last_backward = 0;
    for (NodeId id = 0; id < graph_.nodes.size(); ++id) {
      const uint32_t now = graph_.nodes[id].recorded.phase.number;
      if (now == 0 || now < phase) return false;
      while (begins_.size() <= iteration_of({now})) begins_.push_back(id);
      phase = now;
      if (is_backward(now)) last_backward = now;
    }
    begins_.push_back(static_cast<NodeId>(graph_.nodes.size()));
    const size_t end = iteration_of({last_backward}) + 1;
    if (end >= begins_.size()) return false;
    begins_.resize(end + 1);
    return true;
  }

  // What is recorded after a backward pass and before the next microbatch, as sums of losses, belongs to the one
  // before.
  void take_late_nodes() {
    const size_t after = begins_.size() - 1;
    std::vector<NodeId> late(begins_.size(), 0);
    for (uint32_t iteration = 2; iteration < after; ++iteration) late[iteration] = late_nodes_at(iteration);
    late[after] = std::min(late[after - 1], static_cast<NodeId>(graph_.nodes.size()) - begins_[after]);
    for (size_t iteration = 2; iteration <= after; ++iteration) {
      for (NodeId i = 0; i < late[iteration]; ++i) late_.push_back(begins_[iteration] + i);
      begins_[iteration] += late[iteration];
    }
  }

  // How many nodes a microbatch begins with that end in what the one before has made, and that it does not read itself.
  NodeId late_nodes_at(uint32_t iteration) const {
    const NodeId begin = begins_[iteration], end = begins_[iteration + 1];
    std::vector<NodeId> last_reader(end - begin, 0);
    for (NodeId id = begin; id < end; ++id)
      for (const ValueId value : graph_.nodes[id].inputs)
        if (is_in(value, iteration)) last_reader[graph_.values[value].producer - begin] = id;
    std::vector<bool> goes_on(end - begin, false);  // with what the microbatch before has made
    NodeId found = 0, read_until = begin;
    for (NodeId id = begin; id < end && !is_backward(graph_.nodes[id].recorded.phase.number); ++id) {
      goes_on[id - begin] = std::ranges::any_of(graph_.nodes[id].inputs, [&](ValueId value) {
        return is_in(value, iteration - 1) ||
               (is_in(value, iteration) && goes_on[graph_.values[value].producer - begin]);
      });
      read_until = std::max(read_until, last_reader[id - begin]);
      if (goes_on[id - begin] && read_until <= id) found = id - begin + 1;
    }
    return found;
  }

  bool is_in(ValueId value, uint32_t iteration) const {
    const NodeId producer = graph_.values[value].producer;
    return producer != kNone && producer >= begins_[iteration] && producer < begins_[iteration + 1];
  }
  bool is_before(ValueId value) const {
    const NodeId producer = graph_.values[value].producer;
    return producer == kNone || producer < loop_.begin;
  }
  At at(ValueId value, uint32_t iteration) const {
    const NodeId producer = graph_.values[value].producer;
    return {producer - begins_[iteration], value - graph_.nodes[producer].output};
  }

  bool is_alike(uint32_t iteration) {
    if (begins_[iteration + 1] - begins_[iteration] != loop_.length) return false;
    for (NodeId offset = 0; offset < loop_.length; ++offset)
      if (!is_alike(offset, iteration)) return false;
    return true;
  }

  bool is_alike(NodeId offset, uint32_t iteration) {
    const Node &first = graph_.nodes[loop_.begin + offset], &node = graph_.nodes[begins_[iteration] + offset];
    if (is_backward(first.recorded.phase.number) != is_backward(node.recorded.phase.number) ||
        first.source != node.source || first.recorded.again != node.recorded.again)
      return false;
    if (first.call != node.call && !(*first.call == *node.call)) {
      if (!first.call->start || !same_kind(*first.call, *node.call)) return false;
      starts_vary_[offset] = true;
    }
    if (first.call->num_params && !has_params_of(first, node, iteration)) return false;
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if (!reads_alike(offset, i, iteration)) return false;
    return true;
  }

  bool has_params_of(const Node& first, const Node& node, uint32_t iteration) {
    if (iteration == loop_.first + 1 && loop_.params == 0) loop_.params = node.param - first.param;
    return node.param - first.param == (iteration - loop_.first) * loop_.params;
  }

  // Whether this operand is what the same one of the first iteration is, an iteration later.
  bool reads_alike(NodeId offset, size_t operand, uint32_t iteration) {
    const ValueId first = graph_.nodes[loop_.begin + offset].inputs[operand],
                  value = graph_.nodes[begins_[iteration] + offset].inputs[operand];
    if (is_in(value, iteration)) return is_in(first, loop_.first) && at(value, iteration) == at(first, loop_.first);
    if (is_in(first, loop_.first)) return false;
    if (is_in(value, iteration - 1)) return is_carried(first, at(value, iteration - 1));
    if (!is_before(value)) return false;
    if (first != value) return is_made_alike(first, value) && is_own(first, value, iteration);
    return take_role(first, {Role::invariant}) == Role{Role::invariant};
  }

  bool is_carried(ValueId first, const At& made) {
    const Role role{Role::carried, made};
    return take_role(first, role) == role;
  }

  // Own values are inputs of one kind, or parts of a value.
  bool is_made_alike(ValueId first, ValueId value) const {
    const Input *a = input_of_[first], *b = input_of_[value];
    if (a || b)
      return a && b && a->physical == b->physical && a->annotation == b->annotation && a->state == b->state &&
             a->source == b->source && graph_.values[first].type == graph_.values[value].type;
    const NodeId a_node = graph_.values[first].producer, b_node = graph_.values[value].producer;
    if (a_node == kNone || b_node == kNone) return false;  // of another mesh
    const Node &one = graph_.nodes[a_node], &other = graph_.nodes[b_node];
    return one.call->start && one.call->num_params == 0 && one.inputs == other.inputs &&
           one.call->outputs.size() == 1 && same_kind(*one.call, *other.call) &&
           constraints_of(first) == constraints_of(value);
  }

  std::vector<std::pair<ShardingRef, bool>> constraints_of(ValueId value) const {
    std::vector<std::pair<ShardingRef, bool>> found;
    const auto [begin, end] = constraints_.equal_range(value);
    for (auto at = begin; at != end; ++at) found.emplace_back(at->second->sharding, at->second->state);
    return found;
  }

  // An own value belongs to one iteration alone.
  bool is_own(ValueId first, ValueId value, uint32_t iteration) {
    const Role role = take_role(first, {Role::own_value, {}, loop_.own.size()});
    if (role.kind != Role::own_value || first == value) return false;
    if (role.own == loop_.own.size()) loop_.own.push_back({first});
    std::vector<ValueId>& all = loop_.own[role.own];
    const size_t place = iteration - loop_.first;
    if (all.size() == place + 1) return all[place] == value;
    if (all.size() != place || !owned_.insert(value).second) return false;
    all.push_back(value);
    return true;
  }

  // What the user sees of values of an iteration, in order.
  struct Seen {
    struct One {
      At at;
      bool is_output;
      ShardingRef sharding;
      SourceId source;
      bool state;
      bool kept;  // in the place of what the same tensor held before the step
      bool operator==(const One&) const = default;
    };
    std::vector<One> all;
    bool keeps_state = false;
    bool operator==(const Seen&) const = default;
  };

  void note_what_is_seen() {
    seen_.resize(begins_.size());
    for (const Constraint& c : graph_.constraints)
      if (Seen* seen = seen_of(c.value))
        seen->all.push_back({at_of(c.value), false, c.sharding, c.source, c.state, false});
    for (const Output& o : graph_.outputs)
      if (Seen* seen = seen_of(o.value)) {
        const bool kept = o.donates || o.tied != kNone;
        seen->all.push_back({at_of(o.value), true, o.annotation, o.source, o.state, kept});
        seen->keeps_state |= kept;
      }
  }
  uint32_t iteration_of_node(NodeId node) const {
    return static_cast<uint32_t>(std::upper_bound(begins_.begin(), begins_.end(), node) - begins_.begin()) - 1;
  }
  At at_of(ValueId value) const { return at(value, iteration_of_node(graph_.values[value].producer)); }
  Seen* seen_of(ValueId value) {
    const NodeId producer = graph_.values[value].producer;
    return producer == kNone ? nullptr : &seen_[iteration_of_node(producer)];
  }

  void find_reads() {
    for (NodeId id = begins_[loop_.last + 1]; id < graph_.nodes.size(); ++id)
      for (size_t i = 0; i < graph_.nodes[id].inputs.size(); ++i) {
        const ValueId value = graph_.nodes[id].inputs[i];
        const NodeId producer = graph_.values[value].producer;
        if (is_before(value) || producer >= begins_[loop_.last]) continue;
        const uint32_t iteration = iteration_of_node(producer);
        const At made = at(value, iteration);
        loop_.reads.push_back({id, i, iteration, made.offset, made.result});
      }
  }

  const Graph& graph_;
  std::vector<const Input*> input_of_;  // by value
  std::unordered_multimap<ValueId, const Constraint*> constraints_;
  std::vector<NodeId> begins_;  // by iteration; the last entry ends the last one that has a backward pass
  std::vector<NodeId> late_;
  Loop loop_;
  // What the first iteration reads of others, and how the iterations after it do.
  struct Role {
    enum Kind : uint8_t { none, invariant, carried, own_value } kind = none;
    At made = {};    // of what is carried, by the iteration before
    size_t own = 0;  // of own values, the place in `own`
    bool operator==(const Role&) const = default;
  };
  const Role& take_role(ValueId value, const Role& role) {
    if (roles_[value].kind == Role::none) roles_[value] = role;
    return roles_[value];
  }
  std::vector<bool> starts_vary_;      // by node of an iteration: not all begin where the first one does
  std::vector<Role> roles_;            // by value
  std::unordered_set<ValueId> owned_;  // by the others than the first
  std::vector<Seen> seen_;             // by iteration
};

}  // namespace

std::optional<Loop> find_loop(const Graph& graph) {
  if (!graph.mesh || graph.schedule.empty()) return std::nullopt;
  return Finder(graph).run();
}

}  // namespace spmdx
