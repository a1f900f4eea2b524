// SPDX-License-Identifier: Apache-2.0
// What an assignment keeps of the readers of a value, against a walk over all of them.
#include <algorithm>
#include <random>

#include "check.h"
#include "graph/text.h"
#include "passes/passes.h"
#include "passes/readers/position_set.h"
#include "passes/search/assignment.h"
#include "passes/search/regather.h"
#include "passes/search/search.h"
#include "passes/settings/limits.h"

using namespace spmdx;

namespace {

const Topology kTopology;

// A weight and a product of it, read near each other and far apart, in several layouts, and twice by one node.
std::string program(int nodes, uint32_t seed) {
  std::mt19937 random(seed);
  std::string text =
      "mesh(data=2, model=2)\n%0 = input \"w\" f32[8, 8@model] !f32[8, 8@model] state\n"
      "%1 = input f32[8@data, 8]\n%2 : f32[8, 8] = aten.mm(%1, %1)\n";
  for (int i = 3; i < nodes; ++i) {
    const int recent = std::max(1, i - 1 - static_cast<int>(random() % 4)), old = static_cast<int>(random() % 3);
    const std::string a = "%" + std::to_string(recent), b = "%" + std::to_string(old);
    const std::string other = random() % 8 ? "%1" : b;
    const std::string calls[] = {"aten.mm(" + a + ", " + other + ")", "aten.add.Tensor(" + a + ", " + other + ", 1)",
                                 "aten.mul.Tensor(" + other + ", " + other + ")", "aten.relu(" + a + ")"};
    text += "%" + std::to_string(i) + " : f32[8, 8] = " + calls[random() % 4] + "\n";
  }
  return text + "constrain %5 f32[8, 8@data]\nreturn %" + std::to_string(nodes - 1) + "\nreturn %2\n";
}

// What `node` would want and make with `choice`; other nodes as decided.
struct Walk {
  const Assignment& assignment;
  NodeId node = kNone;
  const Choice* choice = nullptr;

  const Graph& graph() const { return assignment.graph(); }
  const Choice* of(NodeId other) const {
    return other == node ? choice : assignment.decided(other) ? &assignment.choice(other) : nullptr;
  }
  ShardingRef made(ValueId value) const {
    const NodeId producer = graph().values[value].producer;
    if (producer == kNone) return assignment.produced(value);
    return of(producer) ? of(producer)->placement.outputs[value - graph().nodes[producer].output] : nullptr;
  }

  // Pairs of a node and what it wants; outputs come last.
  std::vector<std::pair<NodeId, ShardingRef>> wanted(ValueId value) const {
    std::vector<std::pair<NodeId, ShardingRef>> found;
    for (NodeId user = 0; user < graph().nodes.size(); ++user)
      for (size_t i = 0; of(user) && i < graph().nodes[user].inputs.size(); ++i)
        if (graph().nodes[user].inputs[i] == value) found.emplace_back(user, of(user)->placement.inputs[i]);
    for (const Output& output : graph().outputs)
      if (output.value == value && (output.annotation || output.tied != kNone || made(value)->partial))
        found.emplace_back(graph().nodes.size(),
                           output.annotation ? output.annotation : graph().values[value].sharding);
    return found;
  }

  ReshardPlanRef plan(ValueId value, const ShardingRef& from, const ShardingRef& to) const {
    return plan_reshard(graph().values[value].type.dtype, graph().values[value].type.shape, from, to, kTopology);
  }

  int64_t moves_ns(ValueId value, bool transient) const {
    ShardingRef base = made(value);
    if (!base) return 0;
    int64_t total = 0;
    const auto pin = [&](const ShardingRef& annotation) {
      if (base != annotation) total = plan(value, made(value), annotation)->cost_ns;
      base = annotation;
    };
    for (const Input& input : graph().inputs)
      if (input.value == value && input.annotation) pin(input.annotation);
    for (const Constraint& constraint : graph().constraints)
      if (constraint.value == value) pin(graph().values[value].sharding);
    std::vector<std::pair<ShardingRef, NodeId>> copies;
    for (const auto& [at, layout] : wanted(value)) {
      if (layout == base) continue;
      if (transient) std::erase_if(copies, [&](auto& c) { return c.second + kLimits.nodes_a_copy_stays < at; });
      const auto same = std::find_if(copies.begin(), copies.end(), [&](auto& c) { return c.first == layout; });
      if (same != copies.end()) {
        same->second = at;
        continue;
      }
      ReshardPlanRef best = plan(value, base, layout);
      for (const auto& copy : copies)
        if (auto other = plan(value, copy.first, layout); other->cost_ns < best->cost_ns) best = other;
      total += best->cost_ns;
      for (const Move& move : best->moves) copies.emplace_back(move.to, at);
    }
    return total;
  }

  int64_t cost_around() const {
    std::vector<ValueId> values = graph().nodes[node].inputs;
    std::sort(values.begin(), values.end());
    values.erase(std::unique(values.begin(), values.end()), values.end());
    values.push_back(graph().nodes[node].output);
    int64_t cost = assignment.time_ns(node, *choice);
    for (const ValueId value : values) cost += moves_ns(value, assignment.transient(value));
    return cost;
  }
};

std::vector<ShardingRef> distinct_demands(const Assignment& assignment, ValueId value) {
  std::vector<ShardingRef> list;
  for (const auto& [node, layout] : Walk{assignment}.wanted(value))
    if (list.size() < kLimits.hints && std::find(list.begin(), list.end(), layout) == list.end())
      list.push_back(layout);
  return list;
}

void compare(Assignment& assignment, std::mt19937& random) {
  int64_t moving = 0;
  for (ValueId value = 0; value < assignment.graph().values.size(); ++value) {
    const Walk walk{assignment};
    const int64_t ns = walk.moves_ns(value, assignment.transient(value));
    moving += ns;
    CHECK_EQ(assignment.moves_ns(value), ns);
    CHECK_EQ(assignment.moves_ns_if_kept(value), walk.moves_ns(value, false));
    if (assignment.produced(value)) CHECK(assignment.demands(value) == distinct_demands(assignment, value));
  }
  CHECK_EQ(assignment.moving(), moving);
  const NodeId node = static_cast<NodeId>(random() % assignment.graph().nodes.size());
  for (const ChoiceRef& choice : Choices(assignment.choices(node)))
    CHECK_EQ(assignment.cost_around(node, *choice), (Walk{assignment, node, choice.get()}.cost_around()));
}

void decide_and_undo(const Graph& graph, std::vector<bool> transient, uint32_t seed) {
  std::mt19937 random(seed);
  const CompileOptions options;
  Assignment assignment(graph, options, std::move(transient));
  const auto decide = [&](NodeId node) {
    const Choices& choices = assignment.choices(node);
    assignment.decide(node, choices[random() % choices.size()]);
  };
  for (NodeId node = 0; node < graph.nodes.size(); ++node) decide(node);
  for (int step = 0; step < 6; ++step) {
    const size_t mark = assignment.mark();
    const int64_t total = assignment.total();
    for (int i = 0; i < 12; ++i) decide(static_cast<NodeId>(random() % graph.nodes.size()));
    compare(assignment, random);
    if (random() % 2) continue;
    assignment.undo(mark);
    CHECK_EQ(assignment.total(), total);
    compare(assignment, random);
  }
}

// What its other choices would cost more than the one that is decided.
std::vector<std::pair<ChoiceRef, int64_t>> more_ns(Assignment& assignment, NodeId node) {
  std::vector<std::pair<ChoiceRef, int64_t>> found;
  const int64_t now = assignment.cost_around(node, assignment.choice(node));
  for (const ChoiceRef& choice : Choices(assignment.choices(node)))
    found.emplace_back(choice, assignment.cost_around(node, *choice) - now);
  return found;
}

}  // namespace

TEST(moves_are_those_that_a_walk_over_all_readers_finds) {
  for (uint32_t seed = 1; seed <= 6; ++seed) {
    Graph graph = parse_graph(program(90, seed));
    propagate(graph, {});
    std::vector<bool> transient = transient_values(graph);
    CHECK(transient[0]);
    decide_and_undo(graph, std::vector<bool>(graph.values.size(), false), seed);
    decide_and_undo(graph, transient, seed);
    transient.assign(transient.size(), true);
    decide_and_undo(graph, transient, seed);
  }
}

TEST(who_does_not_notice_a_change_would_not_answer_it) {
  int settled = 0, changes = 0;
  for (uint32_t seed = 1; seed <= 8; ++seed) {
    Graph graph = parse_graph(program(seed % 2 ? 60 : 400, seed));
    propagate(graph, {});
    const CompileOptions options;
    Assignment assignment(graph, options, transient_values(graph));
    choose_greedily(assignment);
    std::mt19937 random(seed);
    for (int step = 0; step < 25; ++step, ++changes) {
      std::vector<std::vector<std::pair<ChoiceRef, int64_t>>> before;
      for (NodeId node = 0; node < graph.nodes.size(); ++node) {
        before.push_back(more_ns(assignment, node));
        assignment.unsettled().settle(node);
      }
      const auto node = static_cast<NodeId>(random() % graph.nodes.size());
      const Choices choices = assignment.choices(node);
      assignment.decide(node, choices[random() % choices.size()]);
      for (NodeId other = 0; other < graph.nodes.size(); ++other) {
        if (!assignment.unsettled().is_settled(other)) continue;
        ++settled;
        CHECK(more_ns(assignment, other) == before[other]);
      }
    }
  }
  CHECK(settled > 100 * changes);  // of 200 nodes in the middle
}

// Bounds of one, two and three levels.
TEST(positions_are_found_in_order) {
  for (const uint32_t bound : {1u, 63u, 64u, 65u, 4096u, 4097u, 70'000u}) {
    std::mt19937 random(bound);
    PositionSet set(bound);
    std::vector<bool> model(bound, false);
    CHECK(set.empty());
    for (int step = 0; step < 400; ++step) {
      const uint32_t at = random() % 3 ? random() % bound : std::min(bound - 1, static_cast<uint32_t>(random() % 70));
      model[at] = random() % 3 != 0;
      model[at] ? set.insert(at) : set.erase(at);
      const uint32_t from = random() % (bound + 1);
      const auto next = std::find(model.begin() + from, model.end(), true);
      CHECK_EQ(set.next(from), next == model.end() ? PositionSet::kEnd : static_cast<uint32_t>(next - model.begin()));
      uint32_t before = from;
      while (before > 0 && !model[before - 1]) --before;
      CHECK_EQ(set.before(from), before == 0 ? PositionSet::kEnd : before - 1);
      CHECK_EQ(set.empty(), std::find(model.begin(), model.end(), true) == model.end());
      CHECK_EQ(set.contains(at), static_cast<bool>(model[at]));
    }
  }
}
