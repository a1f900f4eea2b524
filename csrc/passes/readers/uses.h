// SPDX-License-Identifier: Apache-2.0
// Uses: which operands read which values, from both ends.
#pragma once
#include <span>
#include <vector>

#include "graph/graph.h"

namespace spmdx {

// An operand of a node: the use at `position` of all uses of `value`.
struct Use {
  ValueId value;
  uint32_t operand, position;
};
// The same from the other end.
struct Read {
  NodeId node;
  uint32_t operand;
};
using UsesOfOne = std::span<const Use>;  // of one value, by one node

class Uses {
 public:
  explicit Uses(const Graph& graph);

  // Who reads a value, by position: in program order, and a node as often as it has the value as operand.
  std::span<const Read> reads(ValueId value) const { return slice(reads_, read_ends_, value); }
  // The operands of a node, by value.
  std::span<const Use> of(NodeId node) const { return slice(uses_, use_ends_, node); }
  // Calls `visit` for the uses of each distinct operand.
  template <class Visit>
  void each_operand(NodeId node, const Visit& visit) const {
    const std::span<const Use> all = of(node);
    for (size_t begin = 0, end = 0; begin < all.size(); begin = end) {
      while (end < all.size() && all[end].value == all[begin].value) ++end;
      visit(all.subspan(begin, end - begin));
    }
  }

 private:
  template <class T>
  static std::span<const T> slice(const std::vector<T>& all, const std::vector<uint32_t>& ends, size_t index) {
    const uint32_t begin = index ? ends[index - 1] : 0;
    return {all.data() + begin, ends[index] - begin};
  }

  std::vector<Read> reads_;
  std::vector<Use> uses_;
  std::vector<uint32_t> read_ends_, use_ends_;  // by value, by node
};

}  // namespace spmdx
