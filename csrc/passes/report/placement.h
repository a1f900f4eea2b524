// SPDX-License-Identifier: Apache-2.0
// Placement: where and when the parts of a step run over devices of several kinds, for reports.
#pragma once
#include <string>
#include <vector>

#include "graph/graph.h"
#include "passes/places/stages_by_time.h"

namespace spmdx {

struct PlacedSegment {
  uint32_t device = 0;  // coordinate of the axis
  int64_t start_ns = 0, end_ns = 0;
  int64_t ops = 0;      // those that compute, not those that move elements alone
  std::string op;       // the longest one
  SourceId source = 0;  // of it
};

struct PlacedSend {
  uint32_t from = 0, to = 0;  // coordinates
  int64_t bytes = 0;
  SourceId source = 0;  // of what is sent
  std::string op;       // that makes it
};

struct PlacedSummary {
  std::vector<std::string> kinds;       // by coordinate
  std::vector<PlacedSegment> segments;  // in the order in which they start
  std::vector<PlacedSend> sends;
  int64_t ns = 0;
  int64_t least_ns = 0;           // no placement of these segments takes less
  std::vector<int64_t> alone_ns;  // by coordinate: of the whole step there; negative: some op does not run there
};

PlacedSummary summarise_placement(const PlacedStep& step);

}  // namespace spmdx
