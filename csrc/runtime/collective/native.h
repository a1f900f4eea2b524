// SPDX-License-Identifier: Apache-2.0
// Native: which parts of a move are a collective that the backend of the processes has itself.
#pragma once
#include <cstdint>
#include <map>
#include <vector>

#include "runtime/collective/target.h"
#include "runtime/data/comm.h"

namespace spmdx {

// Which of them may be taken for a move.
struct NativeRules {
  bool gathers = false, sums = false;
  auto operator<=>(const NativeRules&) const = default;
};

// The rules for a move of elements of this dtype: sums are native where both ways add in the same type.
NativeRules rules_for(NativeRules rules, DType dtype, Reduction reduction);

// One of them, as one process takes part in it: every member gives and gets as many elements as the others.
struct Native {
  NativeKind kind = NativeKind::all_gather;
  std::vector<int64_t> group;       // the members, ascending
  std::vector<size_t> targets;      // of this process, by their ordinals, which it makes
  std::vector<Contribution> gives;  // one after the other; for reduce_scatter those to the first member come first
  int64_t part = 0;                 // elements from each member to each other; for all_reduce, all of them
};

// By process, by distinct index in the new layout.
using Targets = std::map<int64_t, std::map<int64_t, Target>>;

// Those of process `here`, in the order in which every process calls them. Targets that one of them makes are marked,
// of all processes.
std::vector<Native> find_natives(int64_t here, NativeRules rules, Targets& targets);

}  // namespace spmdx
