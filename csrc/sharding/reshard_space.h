// SPDX-License-Identifier: Apache-2.0
// The space the reshard planner searches: layouts of one value, and the moves that lead from one to the next.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "sharding/sharding.h"
#include "sharding/topology.h"

namespace spmdx {

// A sharding that is not interned (yet): the planner visits many and keeps few.
struct Layout {
  std::vector<DimSharding> dims;
  AtomSet partial = 0;
  Reduction reduction = Reduction::none;
  bool operator==(const Layout&) const = default;
};
std::string key(const Layout& layout);

struct Step {
  Collective kind = Collective::slice;
  AtomSet atoms = 0;
  int64_t bytes = 0;
  Layout to;
};
using Emit = std::function<void(Step)>;

// How finely atoms move, and where to.
enum class Scope : uint8_t {
  atoms,   // every atom by itself
  units,   // runs of an axis that both ends of the plan treat alike move as one
  towards  // units, and only straight to their places in `to`
};

// REQUIRES: `from` and `to` interned, on one mesh, of the rank of `shape`. Keeps references: outlived by its arguments.
class ReshardSpace {
 public:
  ReshardSpace(int64_t itemsize, const Shape& shape, const Sharding& from, const Sharding& to, Scope scope);

  const Layout& start() const { return start_; }
  const Layout& goal() const { return goal_; }
  size_t num_tokens() const { return tokens_.size(); }

  // Every move from `layout`, in an order that depends on the arguments alone; with `direct` also the exchange of
  // exactly the missing boxes.
  void steps(const Layout& layout, bool direct, const Emit& emit) const;

 private:
  void slices(const Layout& layout, const Emit& emit) const;
  void suffix_moves(const Layout& layout, const Emit& emit) const;
  void joint_gathers(const Layout& layout, Layout& next, size_t dim, AtomSet gathered, int dims,
                     const Emit& emit) const;
  void permutes(const Layout& layout, const Emit& emit) const;
  void reductions(const Layout& layout, const Emit& emit) const;
  void to_partial(const Layout& layout, const Emit& emit) const;
  void direct(const Layout& layout, const Emit& emit) const;

  void fill_permutes(const Layout& layout, Layout& next, size_t dim, int64_t cuts, AtomSet free,
                     const Emit& emit) const;
  std::vector<std::vector<AtomId>> appendable(const Layout& layout, size_t dim, AtomSet free) const;
  std::vector<DimSharding> variants(size_t dim, const DimSharding& now, std::vector<AtomId> atoms) const;
  std::vector<size_t> suffix_starts(const Layout& layout, size_t dim) const;
  int64_t cuts(const DimSharding& dim) const;
  int64_t local_bytes(const Layout& layout) const;

  const Mesh& mesh_;
  const Shape& shape_;
  const int64_t itemsize_;
  const Scope scope_;
  Layout start_, goal_;
  AtomSet atoms_ = 0;                        // of from and to: no other atom ever moves
  std::vector<std::vector<AtomId>> tokens_;  // what moves as one
  std::vector<std::vector<AtomId>> runs_;    // tokens, and whole axes of several tokens
  std::vector<size_t> token_of_;             // by atom
};

}  // namespace spmdx
