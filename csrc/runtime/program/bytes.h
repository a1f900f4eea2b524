// SPDX-License-Identifier: Apache-2.0
// What graphs and programs hold in memory, estimated from what they are made of.
#pragma once
#include "runtime/program/program.h"

namespace spmdx {

// With each call once, though other graphs and the recorder may share it.
int64_t bytes_of(const Graph& graph);
int64_t bytes_of(const Program& program);

}  // namespace spmdx
