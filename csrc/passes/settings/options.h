// SPDX-License-Identifier: Apache-2.0
// What a program is compiled for.
#pragma once
#include <cstdint>
#include <string>

#include "graph/text.h"
#include "passes/settings/device_kinds.h"
#include "sharding/topology.h"

namespace spmdx {

constexpr int64_t kNoLimit = INT64_MAX;

struct CompileOptions {
  Topology topology;
  DeviceKinds kinds;
  std::string dump_dir;  // empty: no dumps
  SourcePrinter source;  // for dumps; passes keep numbers of sources, which reports resolve
  int64_t bucket_bytes = 30 << 20;
  // Bytes a device may spend on gathered parameters that are kept from forward to backward.
  int64_t gather_budget = 0;
  int64_t memory_limit = kNoLimit;  // bytes of a device
  bool recomputes = true;           // where a plan would need more, values are computed anew instead of held
};

// Equal where plans are: of all but where dumps go. Equal in every process.
uint64_t hash(const CompileOptions& options);

}  // namespace spmdx
