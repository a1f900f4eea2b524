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
    const Loop& loop = rolled_.loop;
    Rewrite rewrite(whole_);
    const auto keep = [&](NodeId from, NodeId to) {
      for (NodeId id = from; id < to; ++id)
        if (!is_gone(whole_.nodes[id].output)) this->keep(id, rewrite);
    };
    keep(0, loop.begin);
    keep(loop.begin_of(loop.first + 1), loop.begin_of(loop.last));  // parts of what is made before the loop
    keep(loop.begin, loop.begin_of(loop.first + 1));
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
  void keep(NodeId id, Rewrite& rewrite) const {
    const Loop& loop = rolled_.loop;
    rewrite.keep(whole_.nodes[id]);
    Node& node = rewrite.to().nodes.back();
    if (node.call->start) node.starts_of = id;
    if (loop.is_in(loop.first, id) || loop.is_in(loop.last, id))
      node.recorded.in_loop = (id - loop.begin) % loop.length;
    const auto read = std::ranges::lower_bound(loop.reads, id, {}, &Loop::Read::node);
    if (read != loop.reads.end() && read->node == id)
      node.recorded.in_loop = loop.length + static_cast<uint32_t>(read - loop.reads.begin());
  }

  bool is_gone(ValueId value) const {
    const NodeId producer = whole_.values[value].producer;
    const Loop& loop = rolled_.loop;
    return producer != kNone && loop.is_between(producer) && !loop.makes_own[(producer - loop.begin) % loop.length];
  }

  // What the iteration before the last one has made is now made by the first.
  void carry_on(Rewrite& rewrite) const {
    const Loop& loop = rolled_.loop;
    for (NodeId offset = 0; offset < loop.length; ++offset) {
      if (loop.makes_own[offset]) continue;
      const Node &first = whole_.nodes[loop.begin + offset],
                 &before = whole_.nodes[loop.begin_of(loop.last - 1) + offset];
      for (ValueId r = 0; r < first.call->outputs.size(); ++r)
        rewrite.map(before.output + r, rewrite.at(first.output + r));
    }
  }

  // Outputs and constraints, without those of what is left out; and own values, so that they can be found again.
  void add_seen(Rewrite& rewrite) {
    for (Constraint constraint : whole_.constraints) {
      if (is_gone(constraint.value)) continue;
      constraint.value = rewrite.at(constraint.value);
      rewrite.to().constraints.push_back(constraint);
    }
    for (uint32_t i = 0; i < whole_.outputs.size(); ++i)
      if (!is_gone(whole_.outputs[i].value)) add_output(rewrite, whole_.outputs[i], i);
    std::vector<uint32_t> input_of(whole_.values.size(), kNone);
    for (uint32_t i = 0; i < whole_.inputs.size(); ++i) input_of[whole_.inputs[i].value] = i;
    for (const std::vector<ValueId>& values : rolled_.loop.own) {
      Rolled::Own own;
      own.inputs = input_of[values[0]] != kNone;
      const auto first = static_cast<uint32_t>(rewrite.to().outputs.size());
      for (const ValueId value : values) {
        const auto here = static_cast<uint32_t>(rewrite.to().outputs.size());
        own.at.push_back(own.inputs ? input_of[value] : here);
        const bool is_read = value == values.front() || value == values.back();
        if (!own.inputs) add_output(rewrite, {.value = value, .read_as = is_read ? kNone : first}, kNone);
      }
      rolled_.own.push_back(std::move(own));
    }
  }

  void add_output(Rewrite& rewrite, Output output, uint32_t of_whole) {
    output.value = rewrite.at(output.value);
    rewrite.to().outputs.push_back(output);
    rolled_.outputs.push_back(of_whole);
  }

  const Graph& whole_;
  Rolled rolled_;
};

}  // namespace

Rolled roll(std::shared_ptr<const Graph> whole, Loop loop, Graph& graph) {
  return Roller(std::move(whole), std::move(loop)).run(graph);
}

}  // namespace spmdx
