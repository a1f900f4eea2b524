// SPDX-License-Identifier: Apache-2.0
// Computations: which nodes compute the same.
#pragma once
#include <vector>

#include "graph/graph.h"

namespace spmdx {

// A call with the values that it reads. Nodes of one computation give the same, unless it is random.
struct Computation {
  CallRef call;
  std::vector<ValueId> inputs;
  bool operator==(const Computation& other) const {
    return inputs == other.inputs && (call == other.call || *call == *other.call);
  }
};

struct HashOfComputation {
  size_t operator()(const Computation& computation) const {
    uint64_t h = computation.call->hash;
    for (const ValueId value : computation.inputs) h = hash_combine(h, value);
    return h;
  }
};

}  // namespace spmdx
