// SPDX-License-Identifier: Apache-2.0
// Shapes: ops that compute nothing. Of constant arrays they are views; streams are held in memory and read anew.
#include <algorithm>
#include <numeric>

#include "emit/hls/rows/site.h"
#include "emit/ops/same_ops.h"

namespace spmdx::emit::hls {
namespace {

std::vector<Operand> same(Site& site) { return {site.tensor(0)}; }
std::vector<Operand> reshape(Site& site) { return {reshaped(site.design, site.tensor(0), site.shape())}; }
std::vector<Operand> expanded(Site& site) { return {broadcast(site.design, site.tensor(0), site.shape())}; }

std::vector<Operand> broadcast_in_dim(Site& site) {
  return {broadcast(site.design, site.tensor(0), site.shape(), list_of_integers(site.call(), 2))};
}

// Places of an operand as if it lay contiguous, which views of arrays are made to first.
Operand moved(Site& site, const Operand& a, const Shape& strides, int64_t offset) {
  Operand dense = a;
  if (a.kind == Operand::Kind::rom && !is_contiguous(a)) dense = reshaped(site.design, a, a.shape);
  return at_strides(site.design, site.op(), dense, site.shape(), strides, offset);
}

std::vector<Operand> permuted(Site& site) {
  const Operand a = site.tensor(0);
  const Shape own = contiguous(a.shape);
  Shape strides;
  for (const int64_t dim : integers(site.call(), 1)) strides.push_back(own[normal_dim(dim, a.shape.size())]);
  return {moved(site, a, strides, 0)};
}

std::vector<Operand> transposed(Site& site) {
  const Operand a = site.tensor(0);
  const size_t rank = a.shape.size();
  Shape strides = contiguous(a.shape);
  if (rank == 2 && site.op() == "aten.t") std::swap(strides[0], strides[1]);
  if (site.op() == "aten.transpose.int") std::swap(strides[site.dim(1, rank)], strides[site.dim(2, rank)]);
  return {moved(site, a, strides, 0)};
}

std::vector<Operand> reversed(Site& site) {
  const Operand a = site.tensor(0);
  if (integers(site.call(), 1).empty()) return {a};
  const std::vector<bool> acted = acted_dims(site.call(), 1, a.shape.size());
  Shape strides = contiguous(a.shape);
  int64_t offset = 0;
  for (size_t d = 0; d < strides.size(); ++d) {
    if (!acted[d]) continue;
    offset += (a.shape[d] - 1) * strides[d];
    strides[d] = -strides[d];
  }
  return {moved(site, a, strides, offset)};
}

std::vector<Operand> sliced(Site& site) {
  const Operand a = site.tensor(0);
  const size_t rank = a.shape.size();
  const int64_t dim = site.dim(1, rank), size = a.shape[dim];
  const int64_t start = integer(site.call(), 2, 0), from = start < 0 ? start + size : start;
  Shape strides = contiguous(a.shape);
  const int64_t offset = std::clamp<int64_t>(from, 0, size) * strides[dim];
  strides[dim] *= integer(site.call(), 4, 1);
  return {moved(site, a, strides, offset)};
}

std::vector<Operand> selected(Site& site) {
  const Operand a = site.tensor(0);
  const int64_t dim = site.dim(1, a.shape.size()), at = integer(site.call(), 2, 0);
  Shape strides = contiguous(a.shape);
  const int64_t offset = (at < 0 ? at + a.shape[dim] : at) * strides[dim];
  strides.erase(strides.begin() + dim);
  return {moved(site, a, strides, offset)};
}

std::vector<Operand> strided(Site& site) {
  return {moved(site, site.tensor(0), integers(site.call(), 2), integer(site.call(), 3, 0))};
}

Row filled(size_t arg) {
  return [arg](Site& site) -> std::vector<Operand> { return {site.in(arg, site.elem(), site.shape())}; };
}

std::vector<Operand> zeros(Site& site) { return {splat_of(site.elem(), site.shape(), 0)}; }

}  // namespace

void add_shapes(Table& table) {
  for (const char* op : kCopies) table[op] = same;
  for (const char* op : kReshapes) table[op] = reshape;
  table["prims.broadcast_in_dim"] = broadcast_in_dim;
  table["aten.expand"] = expanded;
  table["prims.transpose"] = table["aten.permute"] = permuted;
  table["aten.t"] = table["aten.transpose.int"] = transposed;
  table["prims.rev"] = table["aten.flip"] = reversed;
  table["aten.slice.Tensor"] = sliced;
  table["aten.select.int"] = selected;
  table["aten.as_strided"] = table["prims.as_strided"] = strided;
  table["aten.full_like"] = table["aten.full"] = table["prims.full"] = table["prims.full_like"] = filled(1);
  table["prims.scalar_tensor"] = table["aten.scalar_tensor"] = filled(0);
  for (const char* op : kZeros) table[op] = zeros;
}

}  // namespace spmdx::emit::hls
