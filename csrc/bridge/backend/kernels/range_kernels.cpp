// SPDX-License-Identifier: Apache-2.0
// Kernels of ranges: rows first, first + step, … of a dim, as far as they are in this shard; and ops of ATen that write
// a part of a tensor, for which it has no variant that writes in place.
#include <ATen/Functions.h>

#include <limits>
#include <tuple>

#include "bridge/backend/buffer.h"
#include "bridge/backend/own_kernels.h"
#include "graph/args.h"
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

Write prepare_write(const Call& call) {
  using List = std::vector<int64_t>;
  const List &dims = own_argument<List>(call, 2), &firsts = own_argument<List>(call, 3),
             &steps = own_argument<List>(call, 4);
  std::vector<Rows> ranges;
  for (size_t i = 0; i < dims.size(); ++i) ranges.push_back({dims[i], firsts[i], steps[i]});
  return [ranges](at::Tensor& target, std::span<const BufferRef> inputs, std::span<const Param>) {
    at::Tensor to = target, from = tensor_of(inputs[1]);
    for (const Rows& rows : ranges) std::tie(to, from) = rows.common(to, from);
    to.copy_(from);
  };
}

// (x, source, dim, start, end, step)
Write prepare_slice_scatter(const Call& call) {
  const int64_t dim = integer(call, 2, 0), step = integer(call, 5, 1);
  const int64_t start = integer(call, 3, 0), end = integer(call, 4, std::numeric_limits<int64_t>::max());
  return [=](at::Tensor& target, std::span<const BufferRef> inputs, std::span<const Param>) {
    target.slice(dim, start, end, step).copy_(tensor_of(inputs[1]));
  };
}

// (x, source, dim, index)
Write prepare_select_scatter(const Call& call) {
  return [dim = own_argument<int64_t>(call, 2), index = own_argument<int64_t>(call, 3)](
             at::Tensor& target, std::span<const BufferRef> inputs, std::span<const Param>) {
    target.select(dim, index).copy_(tensor_of(inputs[1]));
  };
}

// (x, source, offset, dim1, dim2)
Write prepare_diagonal_scatter(const Call& call) {
  const int64_t offset = integer(call, 2, 0), dim1 = integer(call, 3, 0), dim2 = integer(call, 4, 1);
  return [=](at::Tensor& target, std::span<const BufferRef> inputs, std::span<const Param>) {
    target.diagonal(offset, dim1, dim2).copy_(tensor_of(inputs[1]));
  };
}

const OwnKernels range_kernels = {{rules::kPlaceRange, prepare_place}, {rules::kReadRange, prepare_read}};
const OwnKernels writing_kernels = {
    {"aten.diagonal_scatter", prepare_diagonal_scatter},
    {"aten.select_scatter", prepare_select_scatter},
    {"aten.slice_scatter", prepare_slice_scatter},
    {rules::kWriteRange, prepare_write},
};

}  // namespace
}  // namespace spmdx::bridge
