// SPDX-License-Identifier: Apache-2.0
// Closeness: ulps of the largest number that a result was made of.
#include "bridge/backend/closeness.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <limits>

#include "bridge/backend/buffer.h"

namespace spmdx::bridge {
namespace {

constexpr double kUlps = 4096;           // sums of many terms, and ops before this one, round in another order
constexpr double kMostUnequal = 0.0025;  // of integers and bools: floats they were made of may have been nearly equal

double ulp_of(c10::ScalarType type) {
  switch (c10::toRealValueType(type)) {
    case c10::ScalarType::Double:
      return std::numeric_limits<double>::epsilon();
    case c10::ScalarType::Half:
      return 0x1p-10 / 64;  // kernels may keep more digits within a segment, or round at each op
    case c10::ScalarType::BFloat16:
      return 0x1p-7 / 64;
    default:
      return std::numeric_limits<float>::epsilon();
  }
}

bool is_real(const at::Tensor& tensor) { return at::isFloatingType(tensor.scalar_type()) || tensor.is_complex(); }

// Of what is finite; 0 if nothing is.
double largest(const at::Tensor& tensor) {
  if (tensor.numel() == 0 || !is_real(tensor)) return 0;
  const at::Tensor sizes = at::abs(tensor.is_complex() ? tensor : tensor.to(at::kDouble));
  return at::nan_to_num(sizes.to(at::kDouble), 0.0, 0.0, 0.0).max().item<double>();
}

double share_unequal(const at::Tensor& a, const at::Tensor& b) {
  return at::ne(a, b).to(at::kDouble).mean().item<double>();
}

}  // namespace

bool is_close(const at::Tensor& found, const at::Tensor& expected, std::span<const BufferRef> made_of,
              std::span<const BufferRef> before) {
  if (found.sizes() != expected.sizes() || found.scalar_type() != expected.scalar_type()) return false;
  if (expected.numel() == 0) return true;
  if (!is_real(expected)) return share_unequal(found, expected) <= kMostUnequal;
  double scale = largest(expected);
  for (const BufferRef& buffer : made_of) scale = std::max(scale, largest(tensor_of(buffer)));
  if (c10::elementSize(expected.scalar_type()) == 2)
    for (const BufferRef& buffer : before) scale = std::max(scale, largest(tensor_of(buffer)));
  const double bound = kUlps * ulp_of(expected.scalar_type()) * scale;
  return at::allclose(found.to(expected.is_complex() ? at::kComplexDouble : at::kDouble),
                      expected.to(expected.is_complex() ? at::kComplexDouble : at::kDouble), 0.0, bound, true);
}

}  // namespace spmdx::bridge
