// SPDX-License-Identifier: Apache-2.0
// The table of collectives, and the bytes and messages that follow from it.
#include "sharding/collectives.h"

#include <bit>

namespace spmdx {
namespace {

__extension__ using Wide = __int128;

constexpr CollectiveRow kRows[] = {
    {.kind = Collective::slice, .name = "slice"},
    {.kind = Collective::all_gather,
     .name = "all_gather",
     .crossings = 1,
     .rounds = Rounds::tree,
     .joins = true,
     .native = true},
    {.kind = Collective::all_to_all, .name = "all_to_all", .crossings = 1, .rounds = Rounds::peers},
    {.kind = Collective::collective_permute,
     .name = "collective_permute",
     .crossings = 1,
     .all = true,
     .rounds = Rounds::one},
    {.kind = Collective::reduce_scatter,
     .name = "reduce_scatter",
     .crossings = 1,
     .rounds = Rounds::tree,
     .reduces = true,
     .joins = true,
     .native = true},
    {.kind = Collective::all_reduce,
     .name = "all_reduce",
     .crossings = 2,
     .rounds = Rounds::tree,
     .reduces = true,
     .keeps_cuts = true,
     .joins = true,
     .native = true},
    {.kind = Collective::to_partial, .name = "to_partial", .makes_partial = true, .keeps_cuts = true},
    {.kind = Collective::send_recv,
     .name = "send_recv",
     .crossings = 1,
     .all = true,
     .rounds = Rounds::peers,
     .messages = 2},
};

constexpr bool in_order() {
  size_t next = 0;
  for (const CollectiveRow& row : kRows)
    if (static_cast<size_t>(row.kind) != next++) return false;
  return true;
}
static_assert(in_order(), "a row for every enumerator of Collective, in their order");

}  // namespace

std::span<const CollectiveRow> all_collectives() { return kRows; }

const CollectiveRow& traits_of(Collective kind) { return kRows[static_cast<size_t>(kind)]; }

std::string_view name(Collective kind) { return traits_of(kind).name; }

int64_t messages(Collective kind, int64_t group) {
  const CollectiveRow& row = traits_of(kind);
  if (group <= 1) return 0;
  switch (row.rounds) {
    case Rounds::none:
      return 0;
    case Rounds::one:
      return row.messages;
    case Rounds::tree:
      return row.messages * std::bit_width(static_cast<uint64_t>(group - 1));
    case Rounds::peers:
      return row.messages * (group - 1);
  }
  return 0;
}

int64_t wire_bytes(Collective kind, int64_t local_bytes, int64_t group) {
  const CollectiveRow& row = traits_of(kind);
  if (group <= 1) return 0;
  if (row.all) return local_bytes;
  // 128 bits: the product leaves 64 bits at some petabytes.
  return static_cast<int64_t>(static_cast<Wide>(row.crossings) * local_bytes * (group - 1) / group);
}

}  // namespace spmdx
