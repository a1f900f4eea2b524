// SPDX-License-Identifier: Apache-2.0
// Builds the steps of as_strided: slices, permutes and the like where strides match dims of the base, else one step.
#include "bridge/tensor/strided.h"

#include <ATen/EmptyTensor.h>

#include <algorithm>
#include <numeric>

#include "bridge/backend/aten_names.h"
#include "bridge/tensor/calls.h"
#include "bridge/tensor/view_steps.h"

namespace spmdx::bridge {
namespace {

struct StridedDim {
  int64_t size, stride, from;  // `from`: the dim of the base that it walks along, or -1
  int64_t step = 1;
};

// Finds the dim of the base that each dim of the target walks along, and where in the dims of the base the offset is.
// False if there are no such dims.
bool match_dims(const Meta& base, const Meta& target, std::vector<StridedDim>& dims, std::vector<int64_t>& starts) {
  const size_t rank = base.sizes.size();
  std::vector<int64_t> order(rank);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return base.strides[a] > base.strides[b]; });
  starts.assign(rank, 0);
  int64_t rest = target.offset;
  for (int64_t d : order) {
    if (base.sizes[d] <= 1 || base.strides[d] <= 0) continue;
    starts[d] = std::min(rest / base.strides[d], base.sizes[d] - 1);
    rest -= starts[d] * base.strides[d];
  }
  if (rest != 0) return false;
  std::vector<bool> taken(rank, false);
  for (size_t t = 0; t < target.sizes.size(); ++t) {
    StridedDim dim{target.sizes[t], target.strides[t], -1};
    if (dim.size > 1 && dim.stride > 0) {
      for (int64_t d : order) {
        if (taken[d] || base.sizes[d] <= 1 || base.strides[d] <= 0 || dim.stride % base.strides[d]) continue;
        const int64_t k = dim.stride / base.strides[d];
        if (starts[d] + (dim.size - 1) * k >= base.sizes[d]) continue;
        dim.from = d;
        dim.step = k;
        taken[d] = true;
        break;
      }
      if (dim.from < 0) return false;
    }
    dims.push_back(dim);
  }
  return true;
}

// The dims of a dense layout in the order in which it stores them, outermost first.
std::vector<int64_t> storage_order(const Meta& meta) {
  std::vector<int64_t> order(meta.sizes.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) {
    const bool one_a = meta.sizes[a] == 1, one_b = meta.sizes[b] == 1;
    return !one_a && !one_b ? meta.strides[a] > meta.strides[b] : one_a && !one_b;
  });
  return order;
}

// Steps to a dense part of a dense whole: consecutive elements, in another shape or order.
std::vector<ViewStep> run_of_elements(const Meta& base, const Meta& target) {
  Steps steps(base);
  steps.permute(storage_order(base));
  steps.view({numel(base.sizes)});
  steps.slice(0, target.offset, target.offset + numel(target.sizes), 1);
  const std::vector<int64_t> order = storage_order(target);
  Shape stored(order.size());
  std::vector<int64_t> place(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    stored[i] = target.sizes[order[i]];
    place[order[i]] = static_cast<int64_t>(i);
  }
  steps.view(stored);
  steps.permute(place);
  return steps.take();
}

std::vector<ViewStep> matched_steps(const Meta& base, const Meta& target, const std::vector<StridedDim>& dims,
                                    const std::vector<int64_t>& starts) {
  Steps steps(base);
  std::vector<int64_t> place(base.sizes.size(), -1);
  for (const auto& dim : dims) {
    if (dim.from < 0) continue;
    place[dim.from] = 0;
    const int64_t start = starts[dim.from], end = start + (dim.size - 1) * dim.step + 1;
    steps.slice(dim.from, start, end, dim.step);
  }
  for (size_t d = base.sizes.size(); d-- > 0;) {
    if (place[d] < 0) steps.select(static_cast<int64_t>(d), starts[d]);
  }
  int64_t kept = 0;
  for (auto& at : place) {
    if (at == 0) at = kept++;
  }
  std::vector<int64_t> order;
  Shape ones = target.sizes;
  for (size_t t = 0; t < dims.size(); ++t) {
    if (dims[t].from >= 0)
      order.push_back(place[dims[t].from]);
    else
      ones[t] = 1;
  }
  steps.permute(order);
  steps.view(ones);
  steps.expand(target.sizes);
  return steps.take();
}

// Steps to the diagonal of a matrix, or a part of one; none where the target is none.
std::vector<ViewStep> diagonal_steps(const Meta& base, const Meta& target) {
  if (base.sizes.size() != 2 || target.sizes.size() != 1 || target.strides[0] != base.strides[0] + base.strides[1])
    return {};
  const size_t outer = base.strides[0] < base.strides[1];
  const int64_t major = target.offset / base.strides[outer], minor = target.offset % base.strides[outer];
  const int64_t row = outer ? minor : major, column = outer ? major : minor, first = std::min(row, column);
  const int64_t offset = column - row, count = target.sizes[0];
  const int64_t all = std::min(base.sizes[0] - (row - first), base.sizes[1] - (column - first));
  if (first + count > all) return {};  // it would go on in another column
  Steps steps(base);
  steps.add(
      make_call("aten.diagonal", {steps.type()}, {offset, int64_t{0}, int64_t{1}}, {steps.type().dtype, {all}, false}));
  steps.slice(0, first, first + count, 1);
  return steps.take();
}

}  // namespace

bool is_dense(const Meta& meta) {
  if (numel(meta.sizes) == 0) return true;
  const std::vector<int64_t> order = storage_order(meta);
  int64_t expected = 1;
  for (size_t i = order.size(); i-- > 0;) {
    const int64_t d = order[i];
    if (meta.sizes[d] == 1) continue;
    if (meta.strides[d] != expected) return false;
    expected *= meta.sizes[d];
  }
  return true;
}

std::vector<ViewStep> strided_steps(const Meta& base, const Meta& target) {
  std::vector<StridedDim> dims;
  std::vector<int64_t> starts;
  if (base.sizes == target.sizes && base.strides == target.strides && target.offset == 0) return {};
  if (numel(target.sizes) > 0 && is_dense(base)) {
    if (match_dims(base, target, dims, starts)) return matched_steps(base, target, dims, starts);
    if (is_dense(target)) return run_of_elements(base, target);
    if (auto steps = diagonal_steps(base, target); !steps.empty()) return steps;
  }
  Meta out = target;
  out.dtype = base.dtype;
  return {
      view_step(as_strided_call(type_of(base), target.sizes, target.strides, target.offset, base.strides), base, out)};
}

namespace {

// Steps that show a root's storage as elements of another dtype, in one row.
std::vector<ViewStep> as_dtype(const Meta& base, c10::ScalarType dtype) {
  if (base.dtype == dtype) return {};
  TORCH_CHECK(
      is_dense(base),
      "the storage of a tensor with holes or repeats cannot be seen as another dtype. Use .contiguous() first.");
  const int64_t count = numel(base.sizes);
  const auto bytes = static_cast<int64_t>(c10::elementSize(base.dtype)) * count;
  const Meta row{base.dtype, {count}, {1}, 0, true};
  const Meta typed{dtype, {bytes / static_cast<int64_t>(c10::elementSize(dtype))}, {1}, 0, true};
  std::vector<ViewStep> steps = strided_steps(base, row);
  auto call = make_call("aten.view.dtype", {type_of(row)}, {to_dtype(dtype)}, type_of(typed));
  steps.push_back({std::move(call), {}, 0, row, typed});
  return steps;
}

// Appends the ops that the bits of `meta` stand for.
void add_bits(std::vector<ViewStep>& steps, const Meta& meta) {
  const auto add = [&](const char* op) {
    steps.push_back({make_call(op, {type_of(meta)}, {}, type_of(meta)), {}, 0, meta, meta});
  };
  if (meta.conjugate) add("aten.conj_physical");
  if (meta.negative) add("aten.neg");
}

}  // namespace

std::vector<ViewStep> steps_to(const Meta& whole, size_t bytes, const Meta& meta) {
  const Shape &sizes = meta.sizes, &strides = meta.strides;
  const int64_t offset = meta.offset;
  TORCH_CHECK(offset >= 0, "Tensor: invalid storage offset ", offset);
  Meta base = whole;
  for (size_t d = 0; d < sizes.size(); ++d)
    TORCH_CHECK(strides[d] >= 0, "as_strided: Negative strides are not supported");
  const auto needed = at::detail::computeStorageNbytes(sizes, strides, c10::elementSize(meta.dtype), offset);
  TORCH_CHECK(needed <= bytes, "setStorage: sizes ", c10::IntArrayRef(sizes), ", strides ", c10::IntArrayRef(strides),
              ", storage offset ", offset, " require a storage size of ", needed,
              " which is out of bounds for storage of size ", bytes);
  auto steps = as_dtype(base, meta.dtype);
  if (!steps.empty()) base = steps.back().out;
  for (auto& step : strided_steps(base, meta)) steps.push_back(std::move(step));
  add_bits(steps, meta);
  return steps;
}

}  // namespace spmdx::bridge
