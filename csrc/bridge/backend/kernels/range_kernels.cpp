// SPDX-License-Identifier: Apache-2.0
// Kernels of ranges: rows first, first + step, … of a dim, as far as they are in this shard; and ops of ATen that write
// a part of a tensor, for which it has no variant that writes in place.
#include <ATen/Functions.h>

#include <limits>
#include <tuple>

#include "bridge/backend/buffer.h"
#include "bridge/backend/number.h"
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

// Rows whose first is a number, or known at each run.
struct OpenRows {
  int64_t dim;
  Number first;
  int64_t step;

  OpenRows(const Call& call, size_t arg)
      : dim(own_argument<int64_t>(call, arg)),
        first(number(call, arg + 1)),
        step(own_argument<int64_t>(call, arg + 2)) {}
  Rows at(std::span<const Param> params) const { return {dim, first.whole(params), step}; }
};

// All arguments from this one on.
std::vector<Number> numbers_from(const Call& call, size_t arg) {
  std::vector<Number> numbers;
  for (size_t i = arg; i < call.args.size(); ++i) numbers.push_back(number(call, i));
  return numbers;
}

Compute prepare_read(const Call& call) {
  return [rows = OpenRows(call, 1), shape = call.outputs.at(0).shape](
             std::span<const BufferRef> inputs, std::span<const Param> params) -> std::vector<at::Tensor> {
    const at::Tensor& source = tensor_of(inputs[0]);
    at::Tensor result = at::zeros(shape, source.options());
    const auto [from, to] = rows.at(params).common(source, result);
    to.copy_(from);
    return {result};
  };
}

Compute prepare_place(const Call& call) {
  return [rows = OpenRows(call, 1), shape = call.outputs.at(0).shape](
             std::span<const BufferRef> inputs, std::span<const Param> params) -> std::vector<at::Tensor> {
    const at::Tensor& source = tensor_of(inputs[0]);
    at::Tensor result = at::zeros(shape, source.options());
    const auto [to, from] = rows.at(params).common(result, source);
    to.copy_(from);
    return {result};
  };
}

// (x, shifts, dims), and for each shift a parameter that is added to it, or nothing.
Compute prepare_roll(const Call& call) {
  std::vector<int64_t> shifts = integers(call, 1), dims = integers(call, 2);
  const std::vector<Number> added = numbers_from(call, 3);
  return [=](std::span<const BufferRef> inputs, std::span<const Param> params) -> std::vector<at::Tensor> {
    std::vector<int64_t> by = shifts;
    for (size_t i = 0; i < added.size(); ++i) by[i] += added[i].whole(params);
    return {at::roll(tensor_of(inputs[0]), by, dims)};
  };
}

// (base, x, dims, firsts, steps), and for each dim a parameter that is added to its first, or nothing.
Write prepare_write(const Call& call) {
  using List = std::vector<int64_t>;
  const List &dims = own_argument<List>(call, 2), &firsts = own_argument<List>(call, 3),
             &steps = own_argument<List>(call, 4);
  std::vector<Rows> ranges;
  for (size_t i = 0; i < dims.size(); ++i) ranges.push_back({dims[i], firsts[i], steps[i]});
  const std::vector<Number> added = numbers_from(call, 5);
  return [ranges, added](at::Tensor& target, std::span<const BufferRef> inputs, std::span<const Param> params) {
    at::Tensor to = target, from = tensor_of(inputs[1]);
    for (size_t i = 0; i < ranges.size(); ++i) {
      Rows rows = ranges[i];
      if (i < added.size()) rows.first += added[i].whole(params);
      std::tie(to, from) = rows.common(to, from);
    }
    to.copy_(from);
  };
}

// (x, source, dim, start, end, step)
Write prepare_slice_scatter(const Call& call) {
  const int64_t dim = integer(call, 2, 0), step = integer(call, 5, 1);
  const Number start = number_or(call, 3, 0), end = number_or(call, 4, std::numeric_limits<int64_t>::max());
  return [=](at::Tensor& target, std::span<const BufferRef> inputs, std::span<const Param> params) {
    target.slice(dim, start.whole(params), end.whole(params), step).copy_(tensor_of(inputs[1]));
  };
}

// (x, source, dim, index)
Write prepare_select_scatter(const Call& call) {
  return [dim = own_argument<int64_t>(call, 2), index = number(call, 3)](
             at::Tensor& target, std::span<const BufferRef> inputs, std::span<const Param> params) {
    target.select(dim, index.whole(params)).copy_(tensor_of(inputs[1]));
  };
}

const OwnKernels range_kernels = {
    {"aten.roll", prepare_roll}, {rules::kPlaceRange, prepare_place}, {rules::kReadRange, prepare_read}};
const OwnKernels writing_kernels = {
    {"aten.select_scatter", prepare_select_scatter},
    {"aten.slice_scatter", prepare_slice_scatter},
    {rules::kWriteRange, prepare_write},
};

}  // namespace
}  // namespace spmdx::bridge
