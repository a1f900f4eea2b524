// SPDX-License-Identifier: Apache-2.0
// Times of a device by the roofline model. No logarithms: every process must come to the same number.
#include "sharding/hardware.h"

#include <algorithm>
#include <cstdio>

#include "base/error.h"

namespace spmdx {
namespace {

double picoseconds(double amount, double a_second) { return amount * (1e12 / a_second); }

// The rate of a dtype; 0: it has none.
double told(const Hardware& hardware, DType dtype) {
  const auto at = std::ranges::find(hardware.flops_per_second, dtype, &std::pair<DType, double>::first);
  return at == hardware.flops_per_second.end() ? 0 : at->second;
}

double slowest(const Hardware& hardware) {
  return std::ranges::min(hardware.flops_per_second, {}, &std::pair<DType, double>::second).second;
}

std::string shown(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.10g", value);
  return text;
}

void require_in(const std::string& what, double value, double least, double most, const char* unit) {
  if (value >= least && value <= most) return;  // nan is in no range
  throw ShardingError(what + " is " + shown(value) + ". Expected " + unit + ", from " + shown(least) + " to " +
                      shown(most) + ". Check its unit and its sign.");
}

void check_sizes(const std::string& what, const std::vector<Efficiency>& points) {
  for (size_t i = 0; i < points.size(); ++i) {
    require_in("a size of " + what, points[i].size, 0, 1e21, "a number");
    if (i > 0 && points[i - 1].size >= points[i].size)
      throw ShardingError("the sizes of " + what + " are not in order: " + shown(points[i].size) + " follows " +
                          shown(points[i - 1].size) + ". Expected each to be larger than the one before. Sort them.");
  }
}

}  // namespace

double share_at(const std::vector<Efficiency>& points, double size) {
  if (points.empty()) return 1;
  if (size <= points.front().size) return points.front().share;
  for (size_t i = 1; i < points.size(); ++i)
    if (const Efficiency &a = points[i - 1], &b = points[i]; size <= b.size)
      return a.share + (b.share - a.share) * ((size - a.size) / (b.size - a.size));
  return points.back().share;
}

void check_factors(const std::string& what, const std::vector<Efficiency>& points) {
  for (const Efficiency& point : points) require_in("a multiple of " + what, point.share, 1e-3, 1e3, "a number");
  check_sizes(what, points);
}

void check_points(const std::string& what, const std::vector<Efficiency>& points) {
  for (const Efficiency& point : points) require_in("a share of " + what, point.share, 1e-6, 1, "a share of the peak");
  check_sizes(what, points);
  for (size_t i = 1; i < points.size(); ++i) {
    const Efficiency &a = points[i - 1], &b = points[i];
    if (a.share * b.size < b.share * a.size)
      throw ShardingError("by " + what + ", work of " + shown(b.size) + " takes less time than work of " +
                          shown(a.size) +
                          ". Expected shares that grow no faster than sizes. Add points between them, or lower the "
                          "share at " +
                          shown(b.size) + ".");
  }
}

double Hardware::peak_flops_per_second(DType dtype) const {
  const double rate = told(*this, dtype);
  return rate > 0 ? rate : slowest(*this);
}

double Hardware::product_ps(double flops, DType dtype) const {
  return picoseconds(flops, peak_flops_per_second(dtype)) / share_at(product_efficiency, flops);
}

double Hardware::packing_ps(double bytes) const {
  return packing_bytes_per_second > 0 ? picoseconds(bytes, packing_bytes_per_second) : 0;
}

double Hardware::other_ps(double flops) const { return picoseconds(flops, peak_flops_per_second(DType::f32)); }

double Hardware::memory_ps(double bytes) const {
  return picoseconds(bytes, memory_bytes_per_second) / share_at(memory_efficiency, bytes);
}

double Hardware::host_ps(int64_t bytes) const { return picoseconds(static_cast<double>(bytes), host_bytes_per_second); }

void check(const Hardware& hardware) {
  if (hardware.memory_bytes != 0)
    require_in("memory_bytes", static_cast<double>(hardware.memory_bytes), 1 << 20, 1e18, "bytes of a device");
  require_in("memory_bytes_per_second", hardware.memory_bytes_per_second, 1e6, 1e18, "bytes in a second");
  if (hardware.packing_bytes_per_second != 0)
    require_in("packing_bytes_per_second", hardware.packing_bytes_per_second, 1e6, 1e18, "bytes in a second");
  require_in("host_bytes_per_second", hardware.host_bytes_per_second, 1e6, 1e18, "bytes in a second");
  require_in("launch_ns", static_cast<double>(hardware.launch_ns), 0, 1e9, "nanoseconds");
  if (hardware.flops_per_second.empty())
    throw ShardingError("flops_per_second is empty. Expected at least one dtype. Write f32 = 20e9.");
  for (const auto& [dtype, rate] : hardware.flops_per_second)
    require_in("flops_per_second of " + std::string(name(dtype)), rate, 1e6, 1e21, "operations in a second");
  check_points("memory_efficiency", hardware.memory_efficiency);
  check_points("product_efficiency", hardware.product_efficiency);
}

}  // namespace spmdx
