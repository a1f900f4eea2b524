// SPDX-License-Identifier: Apache-2.0
// Unsettled nodes, found among the readers of a value without a look at the others.
#include "passes/readers/unsettled.h"

namespace spmdx {

Unsettled::Unsettled(const Graph& graph, const Uses& uses)
    : graph_(graph), uses_(uses), states_(graph.nodes.size(), State::called) {
  for (ValueId value = 0; value < graph.values.size(); ++value)
    settled_.emplace_back(static_cast<uint32_t>(uses.reads(value).size()));
  unsettled_ = settled_;
  for (NodeId node = 0; node < graph.nodes.size(); ++node) put(node, State::unsettled);
}

void Unsettled::put(NodeId node, State state) {
  if (states_[node] == state) return;
  const State before = states_[node];
  states_[node] = state;
  for (const Use& use : uses_.of(node)) {
    if (before != State::called) (before == State::settled ? settled_ : unsettled_)[use.value].erase(use.position);
    if (state != State::called) (state == State::settled ? settled_ : unsettled_)[use.value].insert(use.position);
  }
}

void Unsettled::mark(NodeId node) {
  if (states_[node] == State::settled) put(node, State::unsettled);
}

void Unsettled::mark_producer(ValueId value) {
  if (graph_.values[value].producer != kNone) mark(graph_.values[value].producer);
}

void Unsettled::mark_readers(ValueId value, uint32_t begin, uint32_t end) {
  const std::span<const Read> reads = uses_.reads(value);
  for (uint32_t at = settled_[value].next(begin); at < end; at = settled_[value].next(at + 1)) mark(reads[at].node);
}

void Unsettled::mark_all() {
  for (NodeId node = 0; node < states_.size(); ++node) mark(node);
}

void Unsettled::call(NodeId node) { put(node, State::called); }

void Unsettled::dismiss(NodeId node) {
  if (states_[node] == State::called) put(node, State::unsettled);
}

void Unsettled::settle(NodeId node) { put(node, State::settled); }

void Unsettled::call_readers(ValueId value, std::set<NodeId>& to) {
  const std::span<const Read> reads = uses_.reads(value);
  PositionSet& unsettled = unsettled_[value];
  for (uint32_t at = unsettled.first(); at != PositionSet::kEnd; at = unsettled.next(at + 1)) {
    to.insert(reads[at].node);
    call(reads[at].node);
  }
}

void Unsettled::call_around(NodeId node, std::set<NodeId>& to) {
  const auto call_one = [&](NodeId other) {
    if (other == kNone || states_[other] != State::unsettled) return;
    to.insert(other);
    call(other);
  };
  uses_.each_operand(node, [&](UsesOfOne uses) {
    call_one(graph_.values[uses.front().value].producer);
    call_readers(uses.front().value, to);
  });
  const Node& at = graph_.nodes[node];
  for (size_t r = 0; r < at.call->outputs.size(); ++r) call_readers(at.output + static_cast<ValueId>(r), to);
  if (!at.call->outputs.empty()) call_one(node);
}

}  // namespace spmdx
