// SPDX-License-Identifier: Apache-2.0
// Roll: the last iteration reads what the first one makes.
#include "passes/loops/roll.h"

#include <algorithm>
#include <utility>

#include "graph/rewrite.h"

namespace spmdx {
namespace {

class Roller {
 public:
  Roller(std::shared_ptr<const Graph> whole, Loop loop) : whole_(*whole) {
    rolled_.whole = std::move(whole);
    rolled_.loop = std::move(loop);
  }

  Rolled run(Graph& graph) {
    std::erase_if(rolled_.loop.reads, [&](const Loop::Read& read) { return !needed_[read.node]; });
    const Loop& loop = rolled_.loop;
    Rewrite rewrite(whole_);
    const auto keep = [&](NodeId from, NodeId to) {
      for (NodeId id = from; id < to; ++id)
        if (needed_[id] || (loop.is_in(loop.first, id) && may_keep(id, rewrite))) this->keep(id, rewrite);
    };
    keep(0, loop.begin_of(loop.first + 1));
    carry_on(rewrite);
    for (const Loop::Read& read : loop.reads) {
      const Node& first = whole_.nodes[loop.begin + read.offset];
      rewrite.map(whole_.nodes[read.node].inputs[read.operand], rewrite.at(first.output + read.result));
    }
    keep(loop.begin_of(loop.last), static_cast<NodeId>(whole_.nodes.size()));
    add_seen(rewrite);
    graph = std::move(rewrite.to());
    graph.left_out = {2 * loop.first - 1, static_cast<int64_t>(loop.iterations()) - 1};
    return std::move(rolled_);
  }

 private:
  // What the first iteration has to itself may be read by the last one. What no output needs may read what is not
  // there.
  bool may_keep(NodeId id, const Rewrite& rewrite) const {
    return std::ranges::all_of(whole_.nodes[id].inputs, [&](ValueId value) { return rewrite.at(value) != kNone; });
  }

  void keep(NodeId id, Rewrite& rewrite) const {
    const Loop& loop = rolled_.loop;
    rewrite.keep(whole_.nodes[id]);
    Node& node = rewrite.to().nodes.back();
    if (node.call->start) node.starts_of = id;
    node.recorded.phase.late = std::ranges::binary_search(loop.late, id);
    if (loop.is_in(loop.first, id) || loop.is_in(loop.last, id))
      node.recorded.in_loop = (id - loop.begin) % loop.length;
    const auto read = std::ranges::lower_bound(loop.reads, id, {}, &Loop::Read::node);
    if (read != loop.reads.end() && read->node == id)
      node.recorded.in_loop = loop.length + static_cast<uint32_t>(read - loop.reads.begin());
  }

  bool is_gone(ValueId value) const {
    const NodeId producer = whole_.values[value].producer;
    return producer != kNone && rolled_.loop.is_between(producer);
  }

  // What the iteration before the last one has made is now made by the first.
  void carry_on(Rewrite& rewrite) const {
    const Loop& loop = rolled_.loop;
    for (NodeId offset = 0; offset < loop.length; ++offset) {
      const Node &first = whole_.nodes[loop.begin + offset],
                 &before = whole_.nodes[loop.begin_of(loop.last - 1) + offset];
      for (ValueId r = 0; r < first.call->outputs.size(); ++r)
        rewrite.map(before.output + r, rewrite.at(first.output + r));
    }
  }

  // Outputs and constraints, without those of what is left out.
  void add_seen(Rewrite& rewrite) {
    for (Constraint constraint : whole_.constraints) {
      if (is_gone(constraint.value)) continue;
      constraint.value = rewrite.at(constraint.value);
      if (constraint.value != kNone) rewrite.to().constraints.push_back(constraint);
    }
    for (uint32_t i = 0; i < whole_.outputs.size(); ++i) {
      Output output = whole_.outputs[i];
      if (is_gone(output.value)) continue;
      output.value = rewrite.at(output.value);
      rewrite.to().outputs.push_back(output);
      rolled_.outputs.push_back(i);
    }
  }

  const Graph& whole_;
  const std::vector<bool> needed_ = needed_nodes(whole_);
  Rolled rolled_;
};

}  // namespace

Rolled roll(std::shared_ptr<const Graph> whole, Loop loop, Graph& graph) {
  return Roller(std::move(whole), std::move(loop)).run(graph);
}

}  // namespace spmdx
