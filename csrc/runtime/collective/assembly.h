// SPDX-License-Identifier: Apache-2.0
// Assembly: of which boxes of which shards a shard in another layout is made up.
#pragma once
#include "graph/rows.h"
#include "sharding/sharding.h"

namespace spmdx {

// A part of one source shard and where it goes in a term.
struct BoxCopy {
  int64_t source = 0;           // distinct index in the old layout
  int64_t position = 0;         // of the device that holds the source and is nearest to the receiver
  Box box;                      // relative to the source shard
  std::vector<int64_t> starts;  // in the term
  bool whole = false;           // all of its source
};

// One term of a target shard's sum, which its pieces cover.
using Summand = std::vector<BoxCopy>;

struct Assembly {
  Shape shape;
  bool identity = false;          // it adds nothing: of a new partial only the first coordinate has the value
  bool holes = false;             // elements that no piece covers are 0
  std::vector<Summand> summands;  // in order of the coordinates that are reduced
};

// A value and the layout that it goes to; or rows that change places.
struct Relayout {
  Shape shape;  // of the value before it
  ShardingRef from = nullptr, to = nullptr;
  RowMap rows;
  // That of the old layout, or of the new one where only that is partial.
  Reduction reduction() const { return from->reduction == Reduction::none ? to->reduction : from->reduction; }
};

// The assembly of the shard that the device at `position` of the new mesh holds. Between two meshes nothing may be left
// to sum.
Assembly assembly_at(const Relayout& relayout, int64_t position);

}  // namespace spmdx
