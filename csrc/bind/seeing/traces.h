// SPDX-License-Identifier: Apache-2.0
// Handle of a plan that a report is of, from which the traces of its devices are made when they are asked for.
#pragma once
#include "runtime/step/plan.h"
#include "sharding/topology.h"

namespace spmdx::bind {

struct PlanHandle {
  PlanRef plan;
  Topology topology;  // that the report's times are for
};

}  // namespace spmdx::bind
