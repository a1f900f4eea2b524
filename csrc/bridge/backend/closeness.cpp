// SPDX-License-Identifier: Apache-2.0
// Closeness: ulps of the largest number, and what rounding changes as far as a perturbed run has shown it.
#include "bridge/backend/closeness.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>

#include <limits>

namespace spmdx::bridge {
namespace {

constexpr double kUlps = 4096;           // sums of many terms, and ops before this one, round in another order
constexpr double kUlpsOf16Bits = 64;     // kernels may keep more digits within a segment, or round at each op
constexpr double kPerturbations = 1024;  // sums of many terms that cancel, in another order
constexpr double kPerturbationsOf16Bits = 64;
constexpr double kMostUnequal = 0.0025;  // of integers and bools: floats they were made of may have been nearly equal

double ulp_of(c10::ScalarType type) {
  switch (c10::toRealValueType(type)) {
    case c10::ScalarType::Double:
      return std::numeric_limits<double>::epsilon();
    case c10::ScalarType::Half:
      return 0x1p-10;
    case c10::ScalarType::BFloat16:
      return 0x1p-7;
    case c10::ScalarType::Float8_e4m3fn:
    case c10::ScalarType::Float8_e4m3fnuz:
      return 0x1p-3;
    case c10::ScalarType::Float8_e5m2:
    case c10::ScalarType::Float8_e5m2fnuz:
      return 0x1p-2;
    default:
      return std::numeric_limits<float>::epsilon();
  }
}

bool is_real(const at::Tensor& tensor) { return at::isFloatingType(tensor.scalar_type()) || tensor.is_complex(); }

at::Tensor widened(const at::Tensor& tensor) {
  return tensor.to(tensor.is_complex() ? at::kComplexDouble : at::kDouble);
}

// Of what is finite; 0 if nothing is.
double largest(const at::Tensor& tensor) {
  return at::nan_to_num(at::abs(widened(tensor)), 0.0, 0.0, 0.0).max().item<double>();
}

double share_unequal(const at::Tensor& a, const at::Tensor& b) {
  return at::ne(a, b).to(at::kDouble).mean().item<double>();
}

double most_unequal(const at::Tensor& expected, const at::Tensor& perturbed) {
  return kMostUnequal + (perturbed.defined() ? 2 * share_unequal(perturbed, expected) : 0);
}

double most_apart(const at::Tensor& expected, const at::Tensor& perturbed) {
  const bool is_short = c10::elementSize(c10::toRealValueType(expected.scalar_type())) <= 2;
  const double changes = perturbed.defined() ? largest(widened(perturbed).sub(widened(expected))) : 0;
  return (is_short ? kUlpsOf16Bits : kUlps) * ulp_of(expected.scalar_type()) * largest(expected) +
         (is_short ? kPerturbationsOf16Bits : kPerturbations) * changes;
}

}  // namespace

at::Tensor perturbed(const at::Tensor& tensor, uint64_t seed) {
  if (!tensor.defined() || !is_real(tensor) || tensor.numel() == 0) return tensor;
  // A generator of its own, so that the program's draws are what they are.
  const at::Tensor drawn =
      at::rand(tensor.sizes(), at::detail::createCPUGenerator(seed), at::TensorOptions().dtype(at::kDouble));
  const at::Tensor less = drawn.to(tensor.device()).mul(-ulp_of(tensor.scalar_type())).add(1);
  return widened(tensor).mul(less).to(tensor.scalar_type());
}

bool is_close(const at::Tensor& found, const at::Tensor& expected, const at::Tensor& perturbed) {
  if (found.sizes() != expected.sizes() || found.scalar_type() != expected.scalar_type()) return false;
  if (expected.numel() == 0) return true;
  if (!is_real(expected)) return share_unequal(found, expected) <= most_unequal(expected, perturbed);
  return at::allclose(widened(found), widened(expected), 0.0, most_apart(expected, perturbed), true);
}

}  // namespace spmdx::bridge
