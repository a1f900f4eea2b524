// SPDX-License-Identifier: Apache-2.0
// HLS: graphs of one device as C++ for high-level synthesis, which makes circuits of it.
// Source: AMD, Vitis High-Level Synthesis User Guide (UG1399), for pragmas and interfaces.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "emit/hls/estimate.h"
#include "graph/graph.h"

namespace spmdx {

struct HlsProject {
  std::map<std::string, std::string> files;  // by name
  emit::hls::HlsEstimate estimate;
  std::string report;
};

// A project of a graph whose ops are of ATen or `prims`, without sharding, in the types that decompositions of PyTorch
// leave. Constants are elements of inputs, by their places, which become arrays of the circuit; other inputs are
// arguments of its top function, and so are outputs. Throws ShardingError that names an op that is not written, and
// says why.
HlsProject hls_project(const Graph& graph, const std::map<int64_t, std::vector<double>>& constants,
                       const emit::hls::HlsOptions& options);
// Ops that are written, in whatever use, sorted.
std::vector<std::string> ops_of_hls();

}  // namespace spmdx
