// SPDX-License-Identifier: Apache-2.0
// Windows: pools, and sums along a dim.
#include <algorithm>
#include <numeric>

#include "emit/rows/site.h"

namespace spmdx::emit {
namespace {

using Sizes = std::vector<int64_t>;

struct PoolWindow {
  Sizes size, stride, dilation, low, high;
};

std::string attributes(const PoolWindow& window) {
  const Sizes ones(window.size.size(), 1);
  return "window_dimensions = " + mlir_array(window.size) + ", window_strides = " + mlir_array(window.stride) +
         ", base_dilations = " + mlir_array(ones) + ", window_dilations = " + mlir_array(window.dilation) +
         ", padding = " + mlir_pairs(window.low, window.high);
}

Tensor sums(Writer& write, const Tensor& a, const Shape& shape, const PoolWindow& window) {
  return write.op("reduce_window", {a, write.constant({a.type.dtype, {}}, int64_t{0})}, {a.type.dtype, shape},
                  attributes(window), Writer::combining("add", a.type.dtype));
}

// Floats of 16 bits are added up in f32.
DType wide(DType dtype) { return is_floating(dtype) && itemsize(dtype) < 4 ? DType::f32 : dtype; }

Row along(std::string_view by, int64_t neutral) {
  return [by, neutral](Site& site) -> std::vector<Tensor> {
    Writer& write = site.write;
    const TensorType& type = site.result();
    const Tensor a = write.convert(site.tensor(0), wide(type.dtype));
    const size_t rank = type.shape.size();
    if (rank == 0 || numel(type.shape) == 0) return {write.convert(a, type.dtype)};
    PoolWindow window{Sizes(rank, 1), Sizes(rank, 1), Sizes(rank, 1), Sizes(rank, 0), Sizes(rank, 0)};
    const int64_t dim = site.dim(1, rank);
    window.size[dim] = type.shape[dim];
    window.low[dim] = type.shape[dim] - 1;
    const Tensor made = write.op("reduce_window", {a, write.constant({a.type.dtype, {}}, neutral)},
                                 {a.type.dtype, type.shape}, attributes(window), Writer::combining(by, a.type.dtype));
    return {write.convert(made, type.dtype)};
  };
}

// A pool's window over the last dims, by arguments from `arg` on: size, stride, padding.
struct Pool {
  Sizes size, stride, padding, dilation;
};

Pool pool(const Site& site, size_t arg, size_t dims, bool has_dilation) {
  Pool found{site.list(arg, dims, 1), {}, site.list(arg + 2, dims, 0), Sizes(dims, 1)};
  found.stride = integers(site.call(), arg + 1).empty() ? found.size : site.list(arg + 1, dims, 1);
  if (has_dilation) found.dilation = site.list(arg + 3, dims, 1);
  return found;
}

// Over all dims, such that it gives `out`: windows may reach beyond the padding.
PoolWindow window_of(const Pool& pool, const Shape& in, const Shape& out) {
  const size_t before = in.size() - pool.size.size();
  PoolWindow window{Sizes(before, 1), Sizes(before, 1), Sizes(before, 1), Sizes(before, 0), Sizes(before, 0)};
  for (size_t d = 0; d < pool.size.size(); ++d) {
    const int64_t reach = (out[before + d] - 1) * pool.stride[d] + pool.dilation[d] * (pool.size[d] - 1) + 1;
    window.size.push_back(pool.size[d]);
    window.stride.push_back(pool.stride[d]);
    window.dilation.push_back(pool.dilation[d]);
    window.low.push_back(pool.padding[d]);
    window.high.push_back(std::max<int64_t>(0, reach - in[before + d] - pool.padding[d]));
  }
  return window;
}

void require_pooled(const Site& site, const Tensor& a) {
  if (numel(a.type.shape) == 0 || numel(site.result().shape) == 0) refuse(site, "a pool of no elements");
}

Row max_pool(size_t dims) {
  return [dims](Site& site) -> std::vector<Tensor> {
    Writer& write = site.write;
    const Tensor a = site.tensor(0);
    require_pooled(site, a);
    const PoolWindow window = window_of(pool(site, 1, dims, true), a.type.shape, site.result().shape);
    const Shape plane(a.type.shape.end() - static_cast<int64_t>(dims), a.type.shape.end());
    const Tensor flat = write.iota({DType::i64, {numel(plane)}}, 0);
    const Tensor index = write.broadcast(write.reshape(flat, plane), a.type.shape);
    const std::string region =
        Writer::region({a.type.dtype, DType::i64, a.type.dtype, DType::i64},
                       [](Writer& inner, const std::vector<Tensor>& in) -> std::vector<Tensor> {
                         const Tensor first = wins(inner, in[0], in[1], in[2], in[3], true, true);
                         return {inner.select(first, in[0], in[2]), inner.select(first, in[1], in[3])};
                       });
    return write.ops("reduce_window", {a, index, write.lowest({a.type.dtype, {}}), write.highest({DType::i64, {}})},
                     {site.result(0), site.result(1)}, attributes(window), region);
  };
}

// Each element of the gradient goes to where the largest one was.
Row max_pool_backward(size_t dims) {
  return [dims](Site& site) -> std::vector<Tensor> {
    Writer& write = site.write;
    const Tensor grad = site.tensor(0), index = site.tensor(7);
    require_pooled(site, grad);
    const Shape& shape = site.result().shape;
    const Shape plane(shape.end() - static_cast<int64_t>(dims), shape.end());
    const int64_t size = numel(plane), rows = numel(shape) / size, each = numel(grad.type.shape) / rows;
    const Tensor row = write.reshape(write.iota({DType::i64, {rows, each}}, 0), {rows * each, 1});
    const Tensor places = write.within(write.reshape(index, {rows * each, 1}), 0, size - 1);
    const Tensor at = write.concatenate({row, places}, 1);
    const DType dtype = wide(grad.type.dtype);
    const Tensor given = write.convert(write.reshape(grad, {rows * each}), dtype);
    const Tensor made = write.op(
        "scatter", {write.constant({dtype, {rows, size}}, int64_t{0}), at, given}, {dtype, {rows, size}},
        "scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0, 1], scatter_dims_to_operand_dims = "
        "[0, 1], index_vector_dim = 1>, indices_are_sorted = false, unique_indices = false",
        Writer::combining("add", dtype));
    return {write.convert(write.reshape(made, shape), grad.type.dtype)};
  };
}

// By how many elements each window's sum is divided: `arg` is ceil_mode, and what follows it.
Tensor divisors(Site& site, size_t arg, const Pool& of, const Shape& in, const Shape& out, DType dtype) {
  Writer& write = site.write;
  const int64_t told = integer(site.call(), arg + 2, 0);
  if (told) return write.constant({dtype, out}, told);
  if (!boolean(site.call(), arg + 1, true))
    return sums(write, write.constant({dtype, in}, int64_t{1}), out, window_of(of, in, out));
  Shape padded = in;
  Pool inside = of;
  const size_t before = in.size() - of.size.size();
  for (size_t d = 0; d < of.size.size(); ++d) padded[before + d] += 2 * of.padding[d];
  inside.padding = Sizes(of.size.size(), 0);
  return sums(write, write.constant({dtype, padded}, int64_t{1}), out, window_of(inside, padded, out));
}

Row average_pool(size_t dims) {
  return [dims](Site& site) -> std::vector<Tensor> {
    Writer& write = site.write;
    const Tensor a = write.convert(site.tensor(0), wide(site.result().dtype));
    require_pooled(site, a);
    const Pool of = pool(site, 1, dims, false);
    const Shape &in = a.type.shape, &out = site.result().shape;
    const Tensor sum = sums(write, a, out, window_of(of, in, out));
    const Tensor by = divisors(site, 4, of, in, out, a.type.dtype);
    return {write.convert(write.binary("divide", sum, by), site.result().dtype)};
  };
}

// Each element is a sum over the windows that have it.
Row average_pool_backward(size_t dims) {
  return [dims](Site& site) -> std::vector<Tensor> {
    Writer& write = site.write;
    const Tensor grad = write.convert(site.tensor(0), wide(site.result().dtype));
    require_pooled(site, grad);
    const Pool of = pool(site, 2, dims, false);
    const Shape &in = site.result().shape, &out = grad.type.shape;
    const Tensor share = write.binary("divide", grad, divisors(site, 5, of, in, out, grad.type.dtype));
    const size_t before = in.size() - dims;
    Sizes low(in.size(), 0), high = low, between = low, size(in.size(), 1);
    for (size_t d = 0; d < dims; ++d) {
      const size_t at = before + d;
      size[at] = of.size[d];
      between[at] = of.stride[d] - 1;
      low[at] = of.size[d] - 1 - of.padding[d];
      high[at] = in[at] + of.size[d] - 1 - low[at] - ((out[at] - 1) * of.stride[d] + 1);
    }
    const Sizes ones(in.size(), 1), none(in.size(), 0);
    const Tensor apart = write.pad(share, low, high, between);
    return {write.convert(sums(write, apart, in, {size, ones, ones, none, none}), site.result().dtype)};
  };
}

}  // namespace

void add_windows(Table& table) {
  table["aten.cumsum"] = along("add", 0);
  table["aten.cumprod"] = along("multiply", 1);
  table["aten.max_pool2d_with_indices"] = max_pool(2);
  table["aten.max_pool3d_with_indices"] = max_pool(3);
  table["aten.max_pool2d_with_indices_backward"] = max_pool_backward(2);
  table["aten.max_pool3d_with_indices_backward"] = max_pool_backward(3);
  table["aten.avg_pool2d"] = average_pool(2);
  table["aten.avg_pool3d"] = average_pool(3);
  table["aten.avg_pool2d_backward"] = average_pool_backward(2);
  table["aten.avg_pool3d_backward"] = average_pool_backward(3);
}

}  // namespace spmdx::emit
