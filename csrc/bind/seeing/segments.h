// SPDX-License-Identifier: Apache-2.0
// Segments of a plan, as reports have them.
#pragma once
#include <pybind11/pybind11.h>

#include "runtime/step/plan.h"

namespace spmdx {

pybind11::dict segments_report(const Plan& plan);

}  // namespace spmdx
