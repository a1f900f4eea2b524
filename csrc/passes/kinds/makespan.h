// SPDX-License-Identifier: Apache-2.0
// Makespan: how long tasks take on devices that are told.
#pragma once
#include <optional>

#include "passes/kinds/tasks.h"

namespace spmdx {

// Each device runs first what comes to it first, which ends as early as can be where one device does all work. By task
// the device, which can run it. Nothing where memory does not hold them.
std::optional<int64_t> makespan_ns(const std::vector<Task>& tasks, const Devices& devices,
                                   const std::vector<uint32_t>& device);

}  // namespace spmdx
