// SPDX-License-Identifier: Apache-2.0
// Dtypes: those of the tensors of a call, by which it is asked who takes it.
#pragma once
#include <set>

#include "graph/graph.h"

namespace spmdx {

// Of operands and results. Numbers of Python have the dtypes of the tensors that they meet.
std::set<DType> dtypes_of(const Call& call);

}  // namespace spmdx
