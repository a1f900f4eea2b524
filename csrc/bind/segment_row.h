// SPDX-License-Identifier: Apache-2.0
// Segment row: a graph of one device as Python's segments are made of it.
#pragma once
#include <pybind11/pybind11.h>

#include "graph/graph.h"

namespace spmdx::bind {

pybind11::dict segment_row(const Graph& graph);

}  // namespace spmdx::bind
