// SPDX-License-Identifier: Apache-2.0
// Where a step runs over devices of several kinds, as a plain dict.
#pragma once
#include <pybind11/pybind11.h>

#include "runtime/step/plan.h"

namespace spmdx {

// None where the step was not placed over kinds.
pybind11::object placement_row(const Plan& plan);

}  // namespace spmdx
