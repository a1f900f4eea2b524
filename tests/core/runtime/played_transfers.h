// SPDX-License-Identifier: Apache-2.0
// Moves between processes, all of them played here, one after the other.
#pragma once
#include <random>

#include "runtime/collective/transfer.h"
#include "runtime/fake_backend.h"

namespace spmdx::test {

struct Traffic {
  int64_t elements = 0;             // that went from one to another in messages
  std::map<NativeKind, int> calls;  // of native collectives, one for each group
};

// One move of f64 among `count` processes of so many devices. Checks that each gets what it would have made of all
// shards alone.
Traffic play(int64_t count, int64_t devices, const Relayout& relayout, NativeRules rules = {});

// Any layout of a value: each sub-axis cuts a dim, sums where it is in `partial`, or is idle.
ShardingRef any_layout(const MeshRef& mesh, const Shape& shape, SubAxisSet partial, std::mt19937& random);

}  // namespace spmdx::test
