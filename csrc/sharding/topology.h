// SPDX-License-Identifier: Apache-2.0
// What a collective costs: α + bytes / bandwidth, in integer nanoseconds so that every rank agrees.
#pragma once
#include <cstdint>
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
  send_recv    // direct exchange of exactly the missing boxes
};
std::string_view name(Collective kind);  // "all_gather"

struct Topology {
  int64_t latency_ns = 5'000;                // α of one collective
  int64_t picoseconds_per_byte = 500;        // 1 / bandwidth: 2 GB/s
  int64_t picoseconds_per_flop = 50;         // 1 / compute rate: 20 GFLOP/s
  int64_t picoseconds_per_local_byte = 100;  // 1 / memory bandwidth: 10 GB/s

  // Time of a collective by which a device receives `bytes`. Moves without wire bytes cost 0.
  int64_t cost_ns(Collective kind, int64_t bytes) const;
};

// Bytes one device receives (g = group size): all_gather out·(g−1)/g, reduce_scatter in·(g−1)/g,
// all_reduce 2·size·(g−1)/g, all_to_all local·(g−1)/g, collective_permute the data received, others 0.
// `local_bytes` is the larger of a device's input and output of the collective.
int64_t wire_bytes(Collective kind, int64_t local_bytes, int64_t group);

}  // namespace spmdx
