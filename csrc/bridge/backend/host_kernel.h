// SPDX-License-Identifier: Apache-2.0
// Kernels that run on the CPU for shards that lie on an accelerator.
#pragma once
#include <memory>

#include "runtime/data/backend.h"

namespace spmdx::bridge {

// Whether the accelerator has no kernel for this op, or would draw other random numbers than the CPU.
bool runs_on_host(const Call& call);

// What `prepare` makes for the accelerator. Where that refuses a dtype or an operand without elements, it runs on the
// host from then on, whose kernels take more.
std::unique_ptr<Kernel> prepare_on_accelerator(const Call& call, std::unique_ptr<Kernel> (*prepare)(const Call& call));

// A kernel that copies operands to the CPU, runs what `prepare` makes for the CPU, and copies results back.
std::unique_ptr<Kernel> prepare_on_host(const Call& call, std::unique_ptr<Kernel> (*prepare)(const Call& call));

}  // namespace spmdx::bridge
