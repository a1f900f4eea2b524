// SPDX-License-Identifier: Apache-2.0
// Assignment: a choice for every node, and the time of all ops and of all moves that follow from it.
#pragma once
#include <vector>

#include "passes/readers/demands.h"
#include "passes/readers/effort.h"
#include "passes/readers/unsettled.h"
#include "passes/settings/options.h"
#include "passes/strategy/choices.h"

namespace spmdx {

class Assignment {
 public:
  // `transient`, by value: gathered copies are dropped between uses that lie far apart. REQUIRES: propagated; `graph`
  // and `options` outlive this. No node is decided yet.
  Assignment(const Graph& graph, const CompileOptions& options, std::vector<bool> transient);

  const Graph& graph() const { return graph_; }
  OpContext context(NodeId node) const;
  ValueId value(NodeId node, size_t tensor) const;  // operands first, then results
  // In program order, a node as often as it has the value as operand.
  std::span<const Read> reads(ValueId value) const { return uses_.reads(value); }
  const Uses& uses() const { return uses_; }
  // Calls `visit`, in program order, for each read of the value in another layout.
  template <class Visit>
  void each_other_use(ValueId value, const ShardingRef& layout, const Visit& visit) const;
  // Another reader than ops: an output or a constraint.
  bool constrained(ValueId value) const { return !other_readers_[value].empty(); }

  bool decided(NodeId node) const { return choices_[node] != nullptr; }
  const Choice& choice(NodeId node) const { return *choices_[node]; }
  const ChoiceRef& choice_ref(NodeId node) const { return choices_[node]; }
  // Of the ops that read a value, in their order.
  uint64_t readers_hash(ValueId value) const { return readers_hash_[value]; }
  // The sharding a value is made in; null where its producer is not decided.
  const ShardingRef& produced(ValueId value) const;
  // The sharding its readers start from: the user's, where the value is constrained.
  const ShardingRef& available(ValueId value) const;
  // The shardings that readers want, distinct, in program order.
  std::vector<ShardingRef> demands(ValueId value) const;
  // Who might have a better response by now.
  Unsettled& unsettled() { return unsettled_; }

  // What the node could do, given what its neighbours and propagation say, and `with` for one tensor.
  const Choices& choices(NodeId node, size_t tensor = SIZE_MAX, const ShardingRef& with = nullptr);
  // What the node could do if the sub-axes that cut an input now cut another of its factors, or none.
  Choices neighbours(NodeId node);
  // The sub-axes that cut none of the node's factors, so that devices along them do the same.
  SubAxisSet unused(NodeId node) const;
  // A choice with this strategy; null where some tensor cannot be laid out so.
  ChoiceRef choice_with(NodeId node, Strategy strategy);
  // Time of the node itself and of the moves of its operands and results, with this choice; where it is `limit` or
  // more, any such number.
  int64_t cost_around(NodeId node, const Choice& choice, int64_t limit = INT64_MAX) const;
  // The way of a value from a layout that is there to the one that a reader wants.
  struct Way {
    ValueId value;
    NodeId reader;  // the number of nodes: it outlives the step; kNone: the user's annotation
    ShardingRef from, to;
    const ReshardPlan* plan;  // held by the assignment
  };
  // What cost_around() counts beside the node itself.
  std::vector<Way> ways_around(NodeId node, const Choice& choice) const;
  // The same without the moves of its results.
  int64_t cost_before(NodeId node, const Choice& choice, int64_t limit = INT64_MAX) const;
  // Time of the cheapest way from one sharding of a value to another, in all iterations that the value stands for.
  int64_t move_ns(ValueId value, const ShardingRef& from, const ShardingRef& to) const;
  // Time of all moves of a value.
  int64_t moves_ns(ValueId value) const { return moves_[value]; }
  // Of all outputs of the graph.
  int64_t moves_of_outputs_ns() const { return moves_of_outputs_; }
  // The same, if the value were not transient.
  int64_t moves_ns_if_kept(ValueId value) const;

  bool transient(ValueId value) const { return transient_[value]; }

  // Time to start one collective, and how many values are moved.
  int64_t start_ns() const { return options_.topology.levels.front().latency_ns; }
  int64_t moved_values() const { return moved_values_; }
  // Of the total, the starts of what the schedule will merge.
  int64_t merged_starts_ns() const { return merged_moves_ * start_ns(); }

  // Whether ops that are no products count as long as they take, or in part (limits.h).
  void count_other_ops_by_clock(bool by_clock);
  // How many nodes it stands for, where iterations of a loop are left out.
  int64_t times(NodeId node) const { return graph_.left_out.of(graph_.nodes[node]); }
  // What the node counts itself.
  int64_t time_ns(NodeId node, const Choice& choice) const {
    return times(node) * (others_by_clock_ && !rules_[node]->product ? choice.time.clock_ns : choice.time.weighted_ns);
  }

  void decide(NodeId node, ChoiceRef choice);
  int64_t total() const { return total_; }
  int64_t moving() const { return moving_; }  // of the total, the moves
  // The total with products by the clock, without their weight; and of that only the moves and the products.
  int64_t unweighted() const { return total_ - over_clock_; }
  int64_t moves_and_products() const { return moving_ + products_; }

  const Effort& effort() const { return effort_; }

  // By node.
  const std::vector<ChoiceRef>& all_choices() const { return choices_; }
  // Takes these choices; none: no node is decided.
  void restart(const std::vector<ChoiceRef>& choices);

  // Decisions made after mark() can be taken back.
  size_t mark() const { return log_.size(); }
  void undo(size_t mark);
  void forget();

 private:
  struct IgnoreWays {
    void operator()(NodeId, const ShardingRef&, const ShardingRef&, const ReshardPlan&) const {}
  };
  const ReshardPlan& plan(ValueId value, const ShardingRef& from, const ShardingRef& to) const;
  int64_t moves_if_read(NodeId node, UsesOfOne uses, const Choice& choice) const;
  int64_t moves_if_made(ValueId value, const ShardingRef& made) const;
  int64_t times_of_use(ValueId value, NodeId reader) const;
  void see_part(ValueId value, const ShardingRef& made, size_t part) const;
  // Time of moves, once for the annotation and once for each part of the demands; `take` is given what makes up each
  // Way.
  template <class Take>
  const ShardingRef* pin(ValueId value, const ShardingRef& made, int64_t& total, const Take& take) const;
  template <class Take>
  int64_t each_way(ValueId value, const ShardingRef& base, bool transient, const Take& take) const;
  template <class Take>
  int64_t each_way_of(ValueId value, const ShardingRef& made, const Take& take) const;
  void add_ends(ValueId value, const ShardingRef& made, std::vector<Stretch>& stretches) const;
  void put(NodeId node, ChoiceRef choice);
  void put_reads(UsesOfOne uses, const Choice* before, const Choice* now);
  void mark_who_notices(ValueId value, UsesOfOne uses);
  void count_time(NodeId node, int64_t sign);
  void set_moves(ValueId value, int64_t now);
  void set_all_parts(ValueId value);
  void add_hints(ValueId value, NodeId asking, UsesOfOne uses, std::vector<ShardingRef>& hints) const;

  struct Reader {  // a reader that is no op
    ShardingRef wanted;
    bool at_once;     // the user's annotation: the value is moved where it is made, before all readers
    bool if_partial;  // `wanted` only where the value is made partial
  };

  const Graph& graph_;
  const CompileOptions& options_;
  ChoiceTable table_;
  std::vector<OpRuleRef> rules_;
  Uses uses_;
  Unsettled unsettled_;
  std::vector<std::vector<Reader>> other_readers_;
  std::vector<ShardingRef> inputs_;      // by value; null for results of nodes
  std::vector<SubAxisList> cutting_;     // the sub-axes that cut dims of inputs as they lie now
  std::vector<int64_t> times_of_value_;  // how many moves one of a value stands for
  std::vector<uint32_t> type_of_;        // by value: equal types have equal numbers
  std::vector<bool> transient_;
  mutable std::vector<Demands> demands_;        // by value; changed for a while to see what would be
  std::vector<std::vector<int64_t>> parts_ns_;  // of values whose demands have several parts
  std::vector<uint64_t> readers_hash_;          // by value
  std::vector<uint32_t> times_output_;          // by value
  std::vector<bool> merged_;                    // by value: see merged_starts.h
  std::vector<ChoiceRef> choices_;
  std::vector<int64_t> moves_;
  bool others_by_clock_ = false;
  int64_t moved_values_ = 0, moves_of_outputs_ = 0;
  int64_t merged_moves_ = 0;  // how many of these values are moved
  int64_t total_ = 0, moving_ = 0, products_ = 0, over_clock_ = 0;
  std::vector<std::pair<NodeId, ChoiceRef>> log_;  // choices before each decision
  struct PlanKey {
    uint32_t type;
    const Sharding *from, *to;
    bool operator==(const PlanKey&) const = default;
  };
  struct Planned {
    ShardingRef from, to;  // held, since their addresses are the key
    ReshardPlanRef plan;
  };
  struct PlanHash {
    size_t operator()(const PlanKey& key) const;
  };
  mutable std::unordered_map<PlanKey, Planned, PlanHash> plans_;
  mutable Effort effort_;
  struct Copy {
    const ShardingRef* sharding;  // belongs to a plan in plans_
    NodeId used;
  };
  mutable std::vector<Stretch> stretches_;  // room for what each_way goes over
  mutable std::vector<Copy> copies_;
  std::vector<Demands::Summary> before_, after_;  // room for mark_who_notices
  Hints hints_;                                   // room for choices()
};

template <class Visit>
void Assignment::each_other_use(ValueId value, const ShardingRef& layout, const Visit& visit) const {
  for (const uint32_t position : demands_[value].others(layout)) visit(reads(value)[position]);
}

// What an output should be laid out as, given how its value is made.
ShardingRef wanted_of(const Graph& graph, const Output& output, const ShardingRef& produced);

}  // namespace spmdx
