// SPDX-License-Identifier: Apache-2.0
// Products of 8-bit floats on accelerators. cuBLAS wants rows by columns, and sizes in whole sixteens, which a
// shard's need not be: operands are filled up with zeros, and the result is cut to its size.
#include <ATen/Functions.h>

#include <array>
#include <optional>

#include "bridge/backend/aten_names.h"
#include "bridge/backend/buffer.h"
#include "bridge/backend/own_kernels.h"
#include "bridge/backend/shard_device.h"

namespace spmdx::bridge {
namespace {

using at::Tensor;

constexpr int64_t kWhole = 16;  // elements

int64_t missing(int64_t size) { return (kWhole - size % kWhole) % kWhole; }

// 8-bit floats are filled up as bytes, of which zero means zero: not every build has a kernel for them.
Tensor filled_up(const Tensor& tensor, int64_t more_rows, int64_t more_columns) {
  const Tensor rows = tensor.contiguous();
  if (more_rows == 0 && more_columns == 0) return rows;
  return at::constant_pad_nd(rows.view(at::kByte), {0, more_columns, 0, more_rows}).view(rows.scalar_type());
}

using Given = std::optional<Tensor>;

// As at::_scaled_mm, of any sizes.
Tensor scaled_mm(const Tensor& a, const Tensor& b, const Tensor& scale_a, const Tensor& scale_b, const Given& bias,
                 const Given& scale_result, at::ScalarType type, bool fast) {
  const int64_t m = a.size(0), n = b.size(1), more_m = missing(m), more_k = missing(a.size(1)), more_n = missing(n);
  if (m == 0 || n == 0) return at::empty({m, n}, a.options().dtype(type));
  const bool by_rows = scale_a.numel() > 1 || scale_b.numel() > 1;
  const auto widened = [more_n](const Tensor& of) { return at::constant_pad_nd(of, {0, more_n}, 1).contiguous(); };
  const Tensor of_rows = by_rows ? at::constant_pad_nd(scale_a, {0, 0, 0, more_m}, 1).contiguous() : scale_a;
  const Tensor product =
      at::_scaled_mm(filled_up(a, more_m, more_k), filled_up(b.t(), more_n, more_k).t(), of_rows,
                     by_rows ? widened(scale_b) : scale_b, bias ? widened(*bias) : bias, scale_result, type, fast);
  return product.narrow(0, 0, m).narrow(1, 0, n).contiguous();
}

// (a, b, scale_a, scale_b, bias, scale_result, out_dtype, use_fast_accum)
std::unique_ptr<Kernel> prepare_scaled_mm(const Call& call) {
  if (shard_device().is_cpu()) return nullptr;
  std::array<std::optional<size_t>, 2> more;  // the bias, and the scale of the result
  for (size_t i = 0; i < more.size(); ++i)
    if (const auto* given = std::get_if<TensorArg>(&call.args.at(4 + i))) more[i] = given->input;
  return kernel_of(call,
                   [more, type = to_scalar_type(call.outputs.at(0).dtype), fast = own_argument<bool>(call, 7)](
                       std::span<const BufferRef> inputs, std::span<const Param>) -> std::vector<Tensor> {
                     std::array<Given, 2> given;
                     for (size_t i = 0; i < more.size(); ++i)
                       if (more[i]) given[i] = tensor_of(inputs[*more[i]]);
                     const auto operand = [&](size_t at) -> const Tensor& { return tensor_of(inputs[at]); };
                     return {scaled_mm(operand(0), operand(1), operand(2), operand(3), given[0], given[1], type, fast)};
                   });
}

const OwnKernels scaled_mm_kernels = {{"aten._scaled_mm", prepare_scaled_mm}};

}  // namespace
}  // namespace spmdx::bridge
