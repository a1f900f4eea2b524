// SPDX-License-Identifier: Apache-2.0
// Demands: which layouts the readers of one value want. What the value costs follows from the distinct ones, however
// many readers there are.
#pragma once
#include "passes/readers/position_set.h"
#include "passes/readers/uses.h"
#include "passes/strategy/strategy.h"

namespace spmdx {

// Uses that share one copy of a value: all that want its layout, or so many as do not lie far apart.
struct Stretch {
  const ShardingRef* wanted;  // until demands change
  uint32_t position;          // of the first use
  NodeId first, last;
};

class Demands {
 public:
  Demands() = default;
  // By position. `transient`: a copy is dropped between uses that lie far apart (limits.h). Nobody wants anything yet.
  Demands(std::span<const Read> reads, bool transient);

  // A node that laid its operands out as `before` says now does as `after` says; null: it is not decided.
  void change(UsesOfOne uses, const Placement* before, const Placement* after);

  // One for each layout, by first use, if the node with these uses did as `with` says; null: if it did not read.
  void distinct(UsesOfOne uses, const Placement* with, std::vector<Stretch>& found) const;

  // Uses so far apart that no copy lives from one part to the next.
  size_t parts() const { return parts_.empty() ? 1 : parts_.size(); }
  size_t part_of(uint32_t position) const;
  std::pair<uint32_t, uint32_t> positions(size_t part) const;  // begin and end
  // Of a transient value the positions, begin and end, of readers for which the costs of their choices may depend on
  // what the reader at this position wants.
  std::pair<uint32_t, uint32_t> reach(uint32_t position) const;
  // Of one part, in order. Of a value that is not transient one for each layout.
  void stretches(size_t part, std::vector<Stretch>& found) const;

  // The positions that want another layout than this one, in order.
  std::vector<uint32_t> others(const ShardingRef& layout) const;

  // What a layout looks like to who does not want it, and to the node that wants it first.
  struct Summary {
    const Sharding* wanted;
    uint32_t first, second;  // the first use, and the first one of another node
    bool operator==(const Summary&) const = default;
  };
  void summarize(std::vector<Summary>& found) const;  // by first use

 private:
  struct Layout {
    ShardingRef wanted;
    PositionSet at;
    PositionSet starts;  // of stretches; of transient values only
  };
  bool far_apart(uint32_t position, uint32_t next) const;
  uint32_t first_at(NodeId node) const;
  void insert(uint32_t position, const ShardingRef& wanted);
  void erase(uint32_t position, const ShardingRef& wanted);
  void mark_start(Layout& layout, uint32_t position) const;

  std::span<const Read> reads_;
  std::vector<Layout> layouts_;  // each is wanted by somebody
  std::vector<uint32_t> parts_;  // where each begins; of transient values only
};

}  // namespace spmdx
