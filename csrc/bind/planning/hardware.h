// SPDX-License-Identifier: Apache-2.0
// Hardware from and to Python.
#pragma once
#include <pybind11/pybind11.h>

#include <utility>
#include <vector>

#include "sharding/hardware.h"

namespace spmdx::bind {

using Points = std::vector<std::pair<double, double>>;
Points as_points(const std::vector<Efficiency>& efficiency);
std::vector<Efficiency> from_points(const pybind11::object& points);

pybind11::dict as_dict(const Hardware& hardware);
// Throws ShardingError where a dtype or a figure is none.
Hardware hardware_from(const pybind11::dict& fields);

}  // namespace spmdx::bind
