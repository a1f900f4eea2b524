// SPDX-License-Identifier: Apache-2.0
// Reports of memory: who holds what at the worst moment of a step.
#pragma once
#include <pybind11/pybind11.h>

#include "runtime/step/plan.h"

namespace spmdx {

// `use`: of the plan's run.
pybind11::dict memory_report(const Plan& plan, const MemoryUseOfRun& use);

}  // namespace spmdx
