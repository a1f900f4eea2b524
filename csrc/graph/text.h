// SPDX-License-Identifier: Apache-2.0
// Graph text: prints and parses graphs in the language of dumps and golden tests.
//
//   mesh(data=4, model=2)
//   %0 = input "x" f32[64@data, 128]                   // the sharding of its data; `!f32[…]` is an annotation
//   %1 = input "w" f32[128, 256] !f32[128, 256@model]
//   %2 : f32[64@data, 256@model] = aten.mm(%0, %1)  // train.py:12
//   %3 : f32[64, 256], %4 : i64[] = aten.op(%2, [%0, none], 1, 2.5, true, [1, 2], "s", dtype:f32, real#0)
//   constrain %2 f32[64, 256@model]
//   return %2 tied %1 donates
#pragma once
#include <functional>
#include <string>

#include "graph/graph.h"

namespace spmdx {

// The text of a source; an empty function, or empty text, prints no comment.
using SourcePrinter = std::function<std::string(SourceId)>;
std::string print(const Graph& graph, const SourcePrinter& source = {});
std::string print(const Node& node, const Graph& graph, const SourcePrinter& source = {});
// The graph that `print` has written, or that a person has. Throws ShardingError that names the wrong line.
Graph parse_graph(const std::string& text);

}  // namespace spmdx
