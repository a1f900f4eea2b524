// SPDX-License-Identifier: Apache-2.0
// Hardware: what a device does by itself, and how fast. Nothing asks what kind of device it is.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/types.h"

namespace spmdx {

// The share of a rate that is reached by work of this size; linear between two points, constant outside of them.
struct Efficiency {
  double size = 0, share = 1;
  bool operator==(const Efficiency&) const = default;
};

double share_at(const std::vector<Efficiency>& points, double size);
// Throws ShardingError where they are no shares, not in order, or where more work would take less time.
void check_points(const std::string& what, const std::vector<Efficiency>& points);
// Throws ShardingError where they are no multiples of a time, or not in order.
void check_factors(const std::string& what, const std::vector<Efficiency>& points);

struct Hardware {
  std::string name = "cpu";
  int64_t memory_bytes = 0;  // 0: not told, and no limit
  double memory_bytes_per_second = 10e9;
  std::vector<Efficiency> memory_efficiency = {};                              // by bytes that an op reads and writes
  std::vector<std::pair<DType, double>> flops_per_second{{DType::f32, 20e9}};  // of products, by dtype; at least one
  std::vector<Efficiency> product_efficiency = {};                             // by operations of a product
  int64_t launch_ns = 0;                                                       // to start an op
  double packing_bytes_per_second = 0;  // at which products lay out what they read and write; 0: beside computing
  double host_bytes_per_second = 5e9;   // between the memory of a device and that of its host, one way

  // A dtype without a rate has the slowest one.
  double peak_flops_per_second(DType dtype) const;
  double product_ps(double flops, DType dtype) const;
  double packing_ps(double bytes) const;  // beside, where it reads and writes so many
  // Of what is no product: at the rate of f32, or the slowest one.
  double other_ps(double flops) const;
  double memory_ps(double bytes) const;
  double host_ps(int64_t bytes) const;
  bool operator==(const Hardware&) const = default;
};

// Throws ShardingError where a figure has the wrong sign or unit, or where more work would take less time.
void check(const Hardware& hardware);

}  // namespace spmdx
