// SPDX-License-Identifier: Apache-2.0
// Shapes: ops that compute nothing, and tensors that are made of nothing.
#include <algorithm>

#include "emit/ops/same_ops.h"
#include "emit/rows/site.h"

namespace spmdx::emit {
namespace {

std::vector<Tensor> same(Site& site) { return {site.tensor(0)}; }
std::vector<Tensor> reshaped(Site& site) { return {site.write.reshape(site.tensor(0), site.result().shape)}; }

std::vector<Tensor> broadcast(Site& site) {
  return {site.write.broadcast(site.tensor(0), site.result().shape, list_of_integers(site.call(), 2))};
}

std::vector<Tensor> expanded(Site& site) { return {site.write.broadcast(site.tensor(0), site.result().shape)}; }

std::vector<Tensor> permuted(Site& site) {
  const Tensor a = site.tensor(0);
  std::vector<int64_t> dims;
  for (const int64_t dim : integers(site.call(), 1)) dims.push_back(normal_dim(dim, a.type.shape.size()));
  return {site.write.transpose(a, dims)};
}

std::vector<Tensor> flipped(Site& site) {
  const Tensor a = site.tensor(0);
  if (integers(site.call(), 1).empty()) return {a};
  return {site.write.op("reverse", {a}, a.type, "dimensions = " + mlir_array(site.dims(1, a.type.shape.size())))};
}

std::vector<Tensor> joined(Site& site) {
  std::vector<Tensor> parts;
  for (const Tensor& part : site.tensors(0))
    if (part.type.shape.size() == site.result().shape.size())  // an old empty tensor of one dim joins any
      parts.push_back(site.write.convert(part, site.result().dtype));
  return {site.write.concatenate(parts, site.dim(1, site.result().shape.size()))};
}

std::vector<Tensor> sliced(Site& site) {
  const Tensor a = site.tensor(0);
  const size_t rank = a.type.shape.size();
  const int64_t dim = site.dim(1, rank), size = a.type.shape[dim];
  const auto place = [&](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + size : at, 0, size); };
  Shape starts(rank, 0), limits = a.type.shape, strides(rank, 1);
  starts[dim] = place(integer(site.call(), 2, 0));
  limits[dim] = std::max(starts[dim], place(integer(site.call(), 3, size)));
  strides[dim] = integer(site.call(), 4, 1);
  return {site.write.slice(a, starts, limits, strides)};
}

std::vector<Tensor> selected_one(Site& site) {
  const Tensor a = site.tensor(0);
  const size_t rank = a.type.shape.size();
  const int64_t dim = site.dim(1, rank), at = integer(site.call(), 2, 0);
  Shape starts(rank, 0), limits = a.type.shape;
  starts[dim] = at < 0 ? at + a.type.shape[dim] : at;
  limits[dim] = starts[dim] + 1;
  return {site.write.reshape(site.write.slice(a, starts, limits, Shape(rank, 1)), site.result().shape)};
}

// Zeros where another padding is asked for by a number, and less where it is negative.
std::vector<Tensor> padded(Site& site) {
  const Tensor a = site.tensor(0);
  const std::vector<int64_t> pads = integers(site.call(), 1);
  const size_t rank = a.type.shape.size();
  std::vector<int64_t> low(rank, 0), high(rank, 0);
  for (size_t i = 0; i + 1 < pads.size(); i += 2) {
    low[rank - 1 - i / 2] = pads[i];
    high[rank - 1 - i / 2] = pads[i + 1];
  }
  const bool has_number = !std::holds_alternative<std::monostate>(argument(site.call(), 2));
  const TensorType scalar{a.type.dtype, {}};
  const Tensor with = has_number ? site.in(2, scalar) : site.write.constant(scalar, int64_t{0});
  return {site.write.op("pad", {a, with}, site.result(),
                        "edge_padding_low = " + mlir_array(low) + ", edge_padding_high = " + mlir_array(high) +
                            ", interior_padding = " + mlir_array(std::vector<int64_t>(rank, 0)))};
}

Row filled(size_t arg) {
  return [arg](Site& site) -> std::vector<Tensor> { return {site.in(arg, site.result())}; };
}

std::vector<Tensor> zeros(Site& site) { return {site.write.constant(site.result(), int64_t{0})}; }

// prims.iota(length, start, step)
std::vector<Tensor> iota(Site& site) {
  Writer& write = site.write;
  const TensorType& type = site.result();
  const Tensor index = write.iota(type, 0);
  const Tensor scaled = write.binary("multiply", index, write.constant(type, integer(site.call(), 2, 1)));
  return {write.binary("add", scaled, write.constant(type, integer(site.call(), 1, 0)))};
}

// Row r of a dim and row r + offset of another one, as the last dim.
std::vector<Tensor> diagonal(Site& site) {
  Writer& write = site.write;
  const Tensor a = site.tensor(0);
  const size_t rank = a.type.shape.size();
  const int64_t offset = integer(site.call(), 1, 0), rows = site.dim(2, rank, 0), columns = site.dim(3, rank, 1);
  std::vector<int64_t> dims;
  for (size_t d = 0; d < rank; ++d)
    if (static_cast<int64_t>(d) != rows && static_cast<int64_t>(d) != columns) dims.push_back(static_cast<int64_t>(d));
  dims.insert(dims.end(), {rows, columns});
  const Tensor last = write.transpose(a, dims);
  const int64_t length = site.result().shape.back(), across = a.type.shape[columns];
  if (length == 0) return zeros(site);
  Shape flat(last.type.shape.begin(), last.type.shape.end() - 2);
  flat.push_back(a.type.shape[rows] * across);
  Shape starts(flat.size(), 0), limits = flat, strides(flat.size(), 1);
  starts.back() = offset >= 0 ? offset : -offset * across;
  strides.back() = across + 1;
  limits.back() = starts.back() + (length - 1) * strides.back() + 1;
  return {write.slice(write.reshape(last, flat), starts, limits, strides)};
}

// Elements of a tensor that lies contiguous, by their places: a slice where that is one, else one by one.
std::vector<Tensor> strided(Site& site) {
  Writer& write = site.write;
  const Tensor a = site.tensor(0);
  const Shape &size = site.result().shape, stride = integers(site.call(), 2);
  const int64_t offset = integer(site.call(), 3, 0), count = numel(a.type.shape);
  if (numel(size) == 0) return zeros(site);
  int64_t dense = 1;
  bool is_dense = true;
  for (size_t d = size.size(); d-- > 0;) {
    is_dense &= size[d] == 1 || stride[d] == dense;
    dense *= size[d];
  }
  const Tensor flat = write.reshape(a, {count});
  if (is_dense) return {write.reshape(write.slice(flat, {offset}, {offset + dense}, {1}), size)};
  Tensor at = write.constant({DType::i64, size}, offset);
  for (size_t d = 0; d < size.size(); ++d) {
    const Tensor step = write.constant({DType::i64, size}, stride[d]);
    at = write.binary("add", at,
                      write.binary("multiply", write.iota({DType::i64, size}, static_cast<int64_t>(d)), step));
  }
  Shape column = size;
  column.push_back(1);
  return {write.op("gather", {flat, write.reshape(at, column)}, site.result(),
                   "dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0], start_index_map = [0], "
                   "index_vector_dim = " +
                       std::to_string(size.size()) + ">, slice_sizes = array<i64: 1>, indices_are_sorted = false")};
}

}  // namespace

void add_shapes(Table& table) {
  for (const char* op : kCopies) table[op] = same;
  for (const char* op : kReshapes) table[op] = reshaped;
  table["prims.broadcast_in_dim"] = broadcast;
  table["aten.expand"] = expanded;
  table["prims.transpose"] = table["aten.permute"] = permuted;
  table["prims.rev"] = table["aten.flip"] = flipped;
  table["prims.cat"] = table["aten.cat"] = joined;
  table["aten.slice.Tensor"] = sliced;
  table["aten.select.int"] = selected_one;
  table["aten.diagonal"] = diagonal;
  table["aten.constant_pad_nd"] = padded;
  table["aten.full_like"] = table["aten.full"] = table["prims.full"] = table["prims.full_like"] = filled(1);
  table["prims.scalar_tensor"] = table["aten.scalar_tensor"] = filled(0);
  for (const char* op : kZeros) table[op] = zeros;
  table["prims.iota"] = iota;
  table["aten.as_strided"] = table["prims.as_strided"] = strided;
}

}  // namespace spmdx::emit
