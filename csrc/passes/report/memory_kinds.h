// SPDX-License-Identifier: Apache-2.0
// Memory kinds: what the values of a planned program are for, which is whom their memory is put down to.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace spmdx {

enum class MemoryKind : uint8_t {
  parameter,        // kept from step to step, and read by the forward pass; buffers, too
  gradient,         // made by a backward pass, and read after it
  optimizer_state,  // kept from step to step, and read by the update alone
  activation,       // made by a forward pass, and what a backward pass makes on its way
  gathered,         // a parameter in another sharding, or cast to another dtype
  collective,       // an activation that a collective has brought
  update,           // what the update makes on its way
  input             // what a step begins with, and does not keep
};
constexpr size_t memory_kinds_in_all() { return static_cast<size_t>(MemoryKind::input) + 1; }
std::string_view name(MemoryKind kind);  // as "optimizer state"

// By value. Told by who reads and makes it: see Recorded::phase. REQUIRES: partitioned.
std::vector<MemoryKind> memory_kinds(const Graph& graph);

}  // namespace spmdx
