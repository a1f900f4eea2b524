// SPDX-License-Identifier: Apache-2.0
// Balance: products that several devices of a planned program repeat, and the cut that would share them out.
#pragma once
#include <string>
#include <vector>

#include "graph/graph.h"

namespace spmdx {

// Equal products of one line of the user's.
struct Repeated {
  SourceId source;
  std::string op;
  int64_t count;       // of these products
  int64_t devices;     // that do the same
  double flops;        // of one device, for all of them
  TensorType operand;  // of the first of them: what could be cut, and how; null: no dim of an operand can be
  ShardingRef cut;
};

// Those with most flops first. REQUIRES: partitioned.
std::vector<Repeated> repeated_products(const Graph& graph);

}  // namespace spmdx
