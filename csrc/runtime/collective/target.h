// SPDX-License-Identifier: Apache-2.0
// Target: of which contributions of which processes a shard in another layout is made up.
#pragma once
#include <cstdint>
#include <vector>

#include "runtime/collective/assembly.h"

namespace spmdx {

// What one process gives to one term of a target: the reduction of summands, or one piece as it is.
struct Contribution {
  int64_t provider = 0;
  std::vector<Summand> summands;
  Shape shape;                  // of what is given
  std::vector<int64_t> starts;  // where it goes in the term
};

// Contributions that lie side by side.
using Term = std::vector<Contribution>;

struct Target {
  static constexpr size_t kAlone = SIZE_MAX;
  Shape shape;
  bool identity = false, holes = false;
  // Some process receives it, or a part of it. Then its elements have one order in memory in all processes: kernels add
  // in that order, and rounding depends on it.
  bool in_rows = false;
  std::vector<Term> terms;  // to be reduced; in the same order on every process, so that replicas stay equal
  // If not empty: each of these processes gives one term and wants the sum. Each adds up one part, and sends that to
  // the others. Process partners[i] gives terms[i] and adds up part i.
  std::vector<int64_t> partners;
  // The first target that is a part of the same small sum as this one, of shards that lie here; kAlone: there is no
  // other.
  size_t sum = kAlone;
  // The dim along which it is made of whole shards that lie here, one after the other; -1: it is not.
  int64_t joined = -1;
  // A native collective makes it, or its one term. Then no messages are of it.
  bool native = false;
};

}  // namespace spmdx
