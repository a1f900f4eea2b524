// SPDX-License-Identifier: Apache-2.0
// Times of a device: rates by dtype, shares of them by size, and that more work never takes less time.
#include "check.h"
#include "sharding/hardware.h"

using namespace spmdx;

TEST(a_dtype_without_a_rate_has_the_slowest) {
  const Hardware device{.flops_per_second = {{DType::bf16, 400e12}, {DType::f64, 10e12}}};
  CHECK_EQ(device.product_ps(400e12, DType::bf16), 1e12);
  CHECK_EQ(device.product_ps(10e12, DType::f64), 1e12);
  CHECK_EQ(device.product_ps(10e12, DType::i8), 1e12);
  CHECK_EQ(device.other_ps(10e12), 1e12);
  CHECK_EQ((Hardware{.flops_per_second = {{DType::bf16, 4e12}, {DType::f32, 8e12}}}.other_ps(8e12)), 1e12);
}

TEST(shares_of_the_peak_are_linear_between_points) {
  const Hardware device{.memory_bytes_per_second = 1e12,
                        .memory_efficiency = {{1e6, 0.5}},
                        .flops_per_second = {{DType::f32, 1e12}},
                        .product_efficiency = {{100, 0.25}, {300, 0.75}}};
  CHECK_EQ(device.product_ps(10, DType::f32), 40.0);
  CHECK_EQ(device.product_ps(200, DType::f32), 400.0);
  CHECK_EQ(device.product_ps(300, DType::f32), 400.0);
  CHECK_EQ(device.product_ps(3000, DType::f32), 4000.0);
  CHECK_EQ(device.memory_ps(8), 16.0);
  CHECK_EQ(device.memory_ps(8e9), 16e9);
}

TEST(products_are_packed_at_a_rate_of_their_own) {
  CHECK_EQ(Hardware{}.packing_ps(1e9), 0.0);
  CHECK_EQ((Hardware{.packing_bytes_per_second = 1e12}.packing_ps(8)), 8.0);
  CHECK_THROWS(
      ShardingError, check({.packing_bytes_per_second = -1}),
      "packing_bytes_per_second is -1. Expected bytes in a second, from 1000000 to 1e+18. Check its unit and its "
      "sign.");
}

TEST(more_work_never_takes_less_time) {
  const Hardware device{.product_efficiency = {{1e8, 0.1}, {1e9, 0.6}, {16e9, 0.9}, {128e9, 0.95}}};
  check(device);
  double before = 0;
  for (double flops = 1e6; flops < 1e12; flops *= 1.01) {
    const double now = device.product_ps(flops, DType::f32);
    CHECK(now > before);
    before = now;
  }
}
