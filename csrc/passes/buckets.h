// SPDX-License-Identifier: Apache-2.0
// Buckets: which collectives become one, and when it runs.
#pragma once
#include <vector>

#include "graph/graph.h"

namespace spmdx {

struct Bucket {
  std::vector<size_t> members;  // nodes; the merged collective stands in the place of the first
  size_t at;                    // the node in whose place it runs: one of the members
  int64_t bytes;                // that a device receives
  // ---- of what its members make ----
  size_t deadline;                // the first reader that does not move
  std::vector<size_t> followers;  // cheap readers before that, which run right behind it if it is late
};

struct Buckets {
  std::vector<Bucket> all;   // also of one collective
  std::vector<size_t> time;  // by node: nodes run by their time, of one time in their order
};

// Neighbouring collectives of a kind meet, up to so many bytes, as early as the operands of all of them are ready.
// Those that are read much later, as gradients, wait for others, up to `waiting` bytes, and their operands are held
// until then; 0: none waits.
Buckets buckets_of(const Graph& graph, int64_t limit, int64_t waiting);

}  // namespace spmdx
