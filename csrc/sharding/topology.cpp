// SPDX-License-Identifier: Apache-2.0
// The kinds of collectives, the bytes they move and the time they take.
#include "sharding/topology.h"

#include <array>

namespace spmdx {
namespace {

__extension__ using Wide = __int128;

// Bytes a device receives: times · local · (g−1)/g, or all of `local` where `all` is set.
struct KindRow {
  std::string_view name;
  int64_t times;
  bool all;
};

// In the order of the enumerators of Collective.
constexpr std::array<KindRow, 8> kKinds = {{
    {"slice", 0, false},
    {"all_gather", 1, false},
    {"all_to_all", 1, false},
    {"collective_permute", 1, true},
    {"reduce_scatter", 1, false},
    {"all_reduce", 2, false},
    {"to_partial", 0, false},
    {"send_recv", 1, true},
}};

const KindRow& row(Collective kind) { return kKinds.at(static_cast<size_t>(kind)); }

}  // namespace

std::string_view name(Collective kind) { return row(kind).name; }

int64_t Topology::cost_ns(Collective kind, int64_t bytes) const {
  if (row(kind).times == 0 || bytes <= 0) return 0;
  // 128 bits: bytes · picoseconds leaves 64 bits at some petabytes.
  return latency_ns + static_cast<int64_t>(static_cast<Wide>(bytes) * picoseconds_per_byte / 1000);
}

int64_t wire_bytes(Collective kind, int64_t local_bytes, int64_t group) {
  const KindRow& kind_row = row(kind);
  if (group <= 1) return 0;
  if (kind_row.all) return local_bytes;
  return static_cast<int64_t>(static_cast<Wide>(kind_row.times) * local_bytes * (group - 1) / group);
}

}  // namespace spmdx
