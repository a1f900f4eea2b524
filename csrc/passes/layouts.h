// SPDX-License-Identifier: Apache-2.0
// Layouts: every layout a value already has in the graph being built, and the cheapest way to one more.
#pragma once
#include <vector>

#include "graph/rewrite.h"
#include "sharding/reshard/reshard.h"

namespace spmdx {

struct Layout {
  ShardingRef sharding;
  ValueId value;    // in the new graph
  NodeId used = 0;  // the last node of the old graph that used it
};

class Layouts {
 public:
  Layouts(const Graph& from, Rewrite& rewrite, const Topology& topology)
      : from_(from), rewrite_(rewrite), topology_(topology), known_(from.values.size()) {}

  // The layout a value was made with.
  void add(ValueId value, ShardingRef sharding, ValueId made) { known_[value].push_back({sharding, made}); }
  // From now on readers start from this layout alone.
  void only(ValueId value, ShardingRef sharding, ValueId made) { known_[value] = {{sharding, made}}; }
  const ShardingRef& produced(ValueId value) const { return known_[value].front().sharding; }
  // Copies that were last used before node `at` are forgotten.
  void forget(ValueId value, NodeId at);
  // The value laid out as `wanted` for node `at`; appends collectives where it is not there yet, with what `cause`
  // says.
  template <class Cause>
  ValueId get(ValueId value, const ShardingRef& wanted, NodeId at, SourceId source, const Cause& cause) {
    Layout& nearest = known_[value][cheapest(value, wanted)];
    if (nearest.sharding != wanted) return move(value, nearest, wanted, at, source, cause());
    nearest.used = at;
    return nearest.value;
  }

 private:
  ReshardPlanRef plan(ValueId value, const Layout& layout, const ShardingRef& wanted) const;
  size_t cheapest(ValueId value, const ShardingRef& wanted) const;
  ValueId move(ValueId value, const Layout& start, const ShardingRef& wanted, NodeId at, SourceId source,
               const std::string& cause);

  const Graph& from_;
  Rewrite& rewrite_;
  const Topology& topology_;
  std::vector<std::vector<Layout>> known_;
};

}  // namespace spmdx
