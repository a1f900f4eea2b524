// SPDX-License-Identifier: Apache-2.0
// The collectives: what each is called, what it moves, and what it does to a layout. All others read this table.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

namespace spmdx {

enum class Collective : uint8_t {
  slice,  // free: keep a part of what is here
  all_gather,
  all_to_all,
  collective_permute,
  reduce_scatter,
  all_reduce,
  to_partial,  // free: replicated → partial (zero on all but the first coordinate)
  send_recv,   // direct exchange of exactly the missing boxes
};

// How many messages a device waits for: as many rounds as a tree has levels, or as there are peers.
enum class Rounds : uint8_t { none, one, tree, peers };

struct CollectiveRow {
  Collective kind;
  std::string_view name;  // "all_gather"
  // How often the data crosses the wire (an all_reduce scatters sums and gathers them: 2); 0: not at all. Bytes a
  // device receives: crossings · local · (g−1)/g, or all of `local` where `all` is set.
  int64_t crossings = 0;
  bool all = false;
  Rounds rounds = Rounds::none;
  int64_t messages = 1;        // in each round; an exchange of boxes posts a send and a receive for every peer
  bool reduces = false;        // what is partial over its sub-axes is no longer; others leave partials as they are
  bool makes_partial = false;  // what was whole becomes partial over its sub-axes
  bool keeps_cuts = false;     // dims are cut afterwards as they were
  bool joins = false;          // neighbours of this kind become one
  bool native = false;         // backends have it, too
};
std::span<const CollectiveRow> all_collectives();  // in the order of the enumerators
const CollectiveRow& traits_of(Collective kind);
std::string_view name(Collective kind);  // "all_gather"

// Messages that a device waits for one after the other in a group of this size: the rounds of the kind, times its
// messages.
int64_t messages(Collective kind, int64_t group);

// Bytes one device receives in a group of this size, by the row of the kind. `local_bytes` is the larger of a device's
// input and output of the collective.
int64_t wire_bytes(Collective kind, int64_t local_bytes, int64_t group);

}  // namespace spmdx
