// SPDX-License-Identifier: Apache-2.0
// Kernels of ranges: rows first, first + step, … of a dim, as far as they are in this shard.
#include <ATen/Functions.h>

#include "bridge/backend/buffer.h"
#include "bridge/backend/own_kernels.h"
#include "rules/rows/ranges.h"

namespace spmdx::bridge {
namespace {

struct Rows {
  int64_t dim, first, step;

  // Those of `count` rows that lie among the `size` rows of `whole`; `part` is a tensor of `count` rows.
  std::pair<at::Tensor, at::Tensor> common(const at::Tensor& whole, const at::Tensor& part) const {
    const auto up = [this](int64_t distance) { return distance <= 0 ? 0 : (distance + step - 1) / step; };
    const int64_t begin = std::min(up(-first), part.size(dim));
    const int64_t end = std::clamp(up(whole.size(dim) - first), begin, part.size(dim));
    const int64_t from = begin == end ? 0 : first + begin * step, to = begin == end ? 0 : first + (end - 1) * step + 1;
    return {whole.slice(dim, from, to, step), part.slice(dim, begin, end)};
  }
};

Rows rows_of(const Call& call, size_t arg) {
  return {own_argument<int64_t>(call, arg), own_argument<int64_t>(call, arg + 1), own_argument<int64_t>(call, arg + 2)};
}

Compute prepare_read(const Call& call) {
  return [rows = rows_of(call, 1), shape = call.outputs.at(0).shape](
             std::span<const BufferRef> inputs, std::span<const Param>) -> std::vector<at::Tensor> {
    const at::Tensor& source = tensor_of(inputs[0]);
    at::Tensor result = at::zeros(shape, source.options());
    const auto [from, to] = rows.common(source, result);
    to.copy_(from);
    return {result};
  };
}

Compute prepare_place(const Call& call) {
  return [rows = rows_of(call, 1), shape = call.outputs.at(0).shape](
             std::span<const BufferRef> inputs, std::span<const Param>) -> std::vector<at::Tensor> {
    const at::Tensor& source = tensor_of(inputs[0]);
    at::Tensor result = at::zeros(shape, source.options());
    const auto [to, from] = rows.common(result, source);
    to.copy_(from);
    return {result};
  };
}

Compute prepare_write(const Call& call) {
  return
      [rows = rows_of(call, 2)](std::span<const BufferRef> inputs, std::span<const Param>) -> std::vector<at::Tensor> {
        at::Tensor result = tensor_of(inputs[0]).clone(at::MemoryFormat::Contiguous);
        const auto [to, from] = rows.common(result, tensor_of(inputs[1]));
        to.copy_(from);
        return {result};
      };
}

const OwnKernels range_kernels = {
    {rules::kPlaceRange, prepare_place},
    {rules::kReadRange, prepare_read},
    {rules::kWriteRange, prepare_write},
};

}  // namespace
}  // namespace spmdx::bridge
