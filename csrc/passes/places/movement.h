// SPDX-License-Identifier: Apache-2.0
// Movements: values that are made again where they are read, as it costs nothing to send what they are made of.
#pragma once
#include "graph/graph.h"

namespace spmdx {

// The op that makes a value of no fewer elements than it reads, by moving them; null: none does. It is done again where
// the value is read elsewhere, so that other readers there may read the same.
const Node* movement_of(const Graph& graph, ValueId value);

}  // namespace spmdx
