// SPDX-License-Identifier: Apache-2.0
// The space the reshard planner searches: layouts of one value, and the moves that lead from one to the next.
#pragma once
#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "sharding/sharding.h"
#include "sharding/topology.h"

namespace spmdx {

// A sharding that is not interned (yet): the planner visits many and keeps few.
struct ReshardState {
  std::vector<DimSharding> dims;
  SubAxisSet partial = 0;
  Reduction reduction = Reduction::none;
  bool operator==(const ReshardState&) const = default;
};
std::string key(const ReshardState& state);

struct ReshardStep {
  Collective kind = Collective::slice;
  SubAxisSet sub_axes = 0;
  int64_t bytes = 0;  // received by a device
  int64_t group = 1;  // devices that take part; of a send_recv, one and all it receives from
  ReshardState to;
};
using EmitStep = std::function<void(ReshardStep)>;

// In which units sub-axes move, and to which places.
enum class ReshardScope : uint8_t {
  sub_axes,  // every sub-axis by itself
  units,     // consecutive sub-axes that both ends of the plan treat alike move as one
  towards    // units, and only straight to their places in `to`
};

// Which moves a state is asked for.
struct ReshardAsk {
  bool wire = true;    // moves that cross the wire at all
  bool direct = true;  // the exchange of exactly the missing boxes
};

SubAxisSet dim_sub_axes(const ReshardState& state);
inline bool is_prefix(const SubAxisList& prefix, const SubAxisList& list) {
  return prefix.size() <= list.size() && std::equal(prefix.begin(), prefix.end(), list.begin());
}

// REQUIRES: `from` and `to` interned, on one mesh, of the rank of `shape`; `levels` as sub_axis_levels. Keeps
// references: outlived by its arguments.
class ReshardSpace {
 public:
  ReshardSpace(int64_t itemsize, const Shape& shape, const Sharding& from, const Sharding& to,
               const std::vector<uint8_t>& levels, ReshardScope scope);

  const Mesh& mesh() const { return mesh_; }
  const ReshardState& start() const { return start_; }
  const ReshardState& goal() const { return goal_; }
  size_t num_tokens() const { return tokens_.size(); }

  // Emits every move from `state` that `ask` allows, in an order that depends on the arguments alone.
  void steps(const ReshardState& state, ReshardAsk ask, const EmitStep& emit) const;
  // From `state` straight to the goal's cuts; a slice where nothing is missing. REQUIRES: may_go_direct(state).
  ReshardStep direct(const ReshardState& state) const;
  bool may_go_direct(const ReshardState& state) const;
  // Bytes that some device has to receive on any way to the goal.
  int64_t least_bytes(const ReshardState& state) const;
  // all_reduce of `sub_axes` of the partial.
  ReshardStep all_reduce(const ReshardState& state, SubAxisSet sub_axes) const;
  // What the goal is partial over and `state` not. REQUIRES: one of them, and none of `state` that the goal lacks.
  ReshardStep to_partial(const ReshardState& state) const;
  // Of the device that holds most.
  int64_t local_bytes(const ReshardState& state) const;

 private:
  void slices(const ReshardState& state, const EmitStep& emit) const;
  // An all_gather of a suffix of a dim, or an all_to_all of it to the end of another dim.
  void suffix_moves(const ReshardState& state, const EmitStep& emit) const;
  // An all_gather of suffixes of several dims at once.
  void joint_gathers(const ReshardState& state, ReshardState& next, size_t dim, SubAxisSet gathered, int dims,
                     const EmitStep& emit) const;
  void reductions(const ReshardState& state, const EmitStep& emit) const;

  // These two: permutes.cpp. A collective_permute to another layout in which a device holds as much.
  void permutes(const ReshardState& state, const EmitStep& emit) const;
  void fill_permutes(const ReshardState& state, ReshardState& next, size_t dim, int64_t cuts, SubAxisSet free,
                     const EmitStep& emit) const;
  std::vector<SubAxisList> appendable(const ReshardState& state, size_t dim, SubAxisSet free) const;
  std::vector<DimSharding> variants(size_t dim, const DimSharding& now, SubAxisList sub_axes) const;
  std::vector<size_t> suffix_starts(const ReshardState& state, size_t dim) const;
  int64_t cuts(const DimSharding& dim) const;
  ReshardStep move(Collective kind, SubAxisSet sub_axes, int64_t local_bytes, ReshardState to) const;

  const Mesh& mesh_;
  const Shape& shape_;
  const int64_t itemsize_;
  const ReshardScope scope_;
  ReshardState start_, goal_;
  SubAxisSet sub_axes_ = 0;          // sub-axes of `from` and `to`; no others ever move
  std::vector<SubAxisList> tokens_;  // what moves as one
  std::vector<SubAxisList> runs_;    // tokens, and whole axes of several tokens
  std::vector<SubAxisSet> fast_;     // the sub-axes of every level but the last, and of those below it
  std::vector<size_t> token_of_;     // by sub-axis
};

}  // namespace spmdx
