// SPDX-License-Identifier: Apache-2.0
// Assembly: of which boxes of which shards a shard in another layout is made up.
#pragma once
#include "graph/rows.h"
#include "sharding/sharding.h"

namespace spmdx {

// A part of one source shard and where it goes in a term.
struct BoxCopy {
  int64_t source = 0;           // distinct index in the old layout
  int64_t position = 0;         // of a device that holds the source: the nearest to the one that shall have the piece
  Box box;                      // relative to the source shard
  std::vector<int64_t> starts;  // in the term
  bool whole = false;           // all of its source
};

// One term of a target shard's sum, which its pieces cover.
using Summand = std::vector<BoxCopy>;

struct Assembly {
  Shape shape;
  bool identity = false;          // not the first coordinate of a new partial: adds nothing
  bool holes = false;             // what no piece covers is 0
  std::vector<Summand> summands;  // in order of the coordinates that are reduced
};

// What turns a value of one layout into another, or rows that change places.
struct Relayout {
  Shape shape;  // of the value before it
  ShardingRef from = nullptr, to = nullptr;
  RowMap rows;
  // Of the sum that the value is, or becomes a part of.
  Reduction reduction() const { return from->reduction == Reduction::none ? to->reduction : from->reduction; }
};

// Of the shard that the device at `position` of the new mesh holds. Between two meshes nothing may be left to sum.
Assembly assembly_at(const Relayout& relayout, int64_t position);

}  // namespace spmdx
