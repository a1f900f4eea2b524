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

// Shares that lie side by side.
using Term = std::vector<Contribution>;

struct Target {
  Shape shape;
  bool identity = false, holes = false;
  // Some process receives it, or a part of it. Then it lies in one order in all: kernels add in the order of memory,
  // and round accordingly.
  bool in_rows = false;
  std::vector<Term> terms;  // to be reduced; in the same order on every process, so that replicas stay equal
  // If not empty: each of these processes gives one term and wants the sum. Each sums a part of it, and hands that to
  // the others: part i is that of partners[i], who gives terms[i].
  std::vector<int64_t> partners;
};

struct Delivery {
  int64_t peer = 0;
  Contribution contribution;  // without summands where the target has partners:
  size_t target = 0;          // the part of the peer is sent, of what this process gives to this target of its own
};

struct Route {
  int64_t here = 0;
  std::vector<Target> targets;       // of this process, by its shards of the new layout
  std::vector<Delivery> deliveries;  // in the order in which each peer looks for them
  std::vector<int64_t> sources;      // the old shards it holds, by distinct index, ascending
  bool crosses = false;              // something comes or goes
};

// Sums of at least this many elements are shared out, among more than two partners.
constexpr int64_t kLeastSharedSum = 16'384;

Route make_route(const Processes& processes, const Relayout& relayout);

}  // namespace spmdx
