// SPDX-License-Identifier: Apache-2.0
// Kernels that only the CPU has, for shards that lie elsewhere.
#pragma once
#include <memory>

#include "runtime/data/backend.h"

namespace spmdx::bridge {

// Whether the place of the shards has no kernel for this op, or one that would draw other random numbers.
bool runs_on_host(const Call& call);

// The kernel that `prepare` makes for the CPU, between copies there and back.
std::unique_ptr<Kernel> prepare_on_host(const Call& call, std::unique_ptr<Kernel> (*prepare)(const Call& call));

}  // namespace spmdx::bridge
