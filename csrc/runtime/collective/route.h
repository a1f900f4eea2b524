// SPDX-License-Identifier: Apache-2.0
// Route: which process contributes what to the shards of a collective.
#pragma once
#include "runtime/collective/assembly.h"
#include "sharding/processes.h"

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
};

struct Delivery {
  int64_t peer = 0;
  Contribution contribution;  // without summands where the target has partners: then
  size_t target = 0;          // the peer's part is sent, of what this process gives to its own target of this number
};

struct Route {
  int64_t here = 0;
  std::vector<Target> targets;       // of this process, by its shards of the new layout
  std::vector<Delivery> deliveries;  // in the order in which each peer looks for them
  std::vector<int64_t> sources;      // the old shards it holds, by distinct index, ascending
  bool crosses = false;              // something is sent or received
};

// Parts of a sum of so few elements are cut out of it; those of a larger one are added up each by itself, so that no
// part keeps the memory of the others.
constexpr int64_t kMostCutSum = 4'096;

// A sum of more than two partners is shared out if it has at least so many elements.
constexpr int64_t kLeastSharedSum = 16'384;

Route make_route(const Processes& processes, const Relayout& relayout);

}  // namespace spmdx
