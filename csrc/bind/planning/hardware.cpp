// SPDX-License-Identifier: Apache-2.0
// Hardware from and to Python, as plain dicts.
#include "bind/planning/hardware.h"

#include <pybind11/stl.h>

#include "bind/handles.h"

namespace spmdx::bind {

namespace py = pybind11;
using namespace py::literals;

Points as_points(const std::vector<Efficiency>& efficiency) {
  Points points;
  for (const Efficiency& at : efficiency) points.emplace_back(at.size, at.share);
  return points;
}

std::vector<Efficiency> from_points(const py::object& points) {
  std::vector<Efficiency> efficiency;
  for (const auto& [size, share] : points.cast<Points>()) efficiency.push_back({size, share});
  return efficiency;
}

py::dict as_dict(const Hardware& hardware) {
  py::dict rates;
  for (const auto& [dtype, rate] : hardware.flops_per_second) rates[py::str(std::string(name(dtype)))] = rate;
  return py::dict("name"_a = hardware.name, "memory_bytes"_a = hardware.memory_bytes,
                  "memory_bytes_per_second"_a = hardware.memory_bytes_per_second,
                  "memory_efficiency"_a = as_points(hardware.memory_efficiency), "flops_per_second"_a = rates,
                  "product_efficiency"_a = as_points(hardware.product_efficiency), "launch_ns"_a = hardware.launch_ns,
                  "packing_bytes_per_second"_a = hardware.packing_bytes_per_second,
                  "host_bytes_per_second"_a = hardware.host_bytes_per_second);
}

Hardware hardware_from(const py::dict& fields) {
  Hardware hardware{.name = fields["name"].cast<std::string>(),
                    .memory_bytes = fields["memory_bytes"].cast<int64_t>(),
                    .memory_bytes_per_second = fields["memory_bytes_per_second"].cast<double>(),
                    .memory_efficiency = from_points(fields["memory_efficiency"]),
                    .flops_per_second = {},
                    .product_efficiency = from_points(fields["product_efficiency"]),
                    .launch_ns = fields["launch_ns"].cast<int64_t>(),
                    .packing_bytes_per_second = fields["packing_bytes_per_second"].cast<double>(),
                    .host_bytes_per_second = fields["host_bytes_per_second"].cast<double>()};
  for (const auto& [dtype, rate] : fields["flops_per_second"].cast<py::dict>())
    hardware.flops_per_second.emplace_back(dtype_named(dtype.cast<std::string>()), rate.cast<double>());
  check(hardware);
  return hardware;
}

}  // namespace spmdx::bind
