// SPDX-License-Identifier: Apache-2.0
// Reductions over dims.
#include <algorithm>
#include <numeric>

#include "emit/rows/site.h"

namespace spmdx::emit {
namespace {

using Dims = std::vector<int64_t>;

Dims all_dims(const Tensor& a) {
  Dims dims(a.type.shape.size());
  std::iota(dims.begin(), dims.end(), 0);
  return dims;
}

std::vector<Tensor> sum(Site& site) {
  const Tensor a = site.write.convert(site.tensor(0), site.result().dtype);
  return {site.write.sum(a, site.dims(1, a.type.shape.size()))};
}

std::vector<Tensor> product_over(Site& site) {
  const Tensor a = site.write.convert(site.tensor(0), site.result().dtype);
  const Tensor one = site.write.constant({a.type.dtype, {}}, int64_t{1});
  return {site.write.reduce(a, one, site.dims(1, a.type.shape.size()), "multiply")};
}

Tensor extreme(Site& site, const Tensor& a, const Dims& dims, bool is_max) {
  const TensorType scalar{a.type.dtype, {}};
  const Tensor start = is_max ? site.write.lowest(scalar) : site.write.highest(scalar);
  return site.write.reduce(a, start, dims, is_max ? "maximum" : "minimum");
}

void require_some(const Site& site, const Tensor& a) {
  if (numel(a.type.shape) == 0) refuse(site, "the extreme of no elements is an error, which no kernel raises");
}

Row extreme_over(bool is_max) {
  return [is_max](Site& site) -> std::vector<Tensor> {
    const Tensor a = site.tensor(0);
    require_some(site, a);
    const Tensor found = extreme(site, a, site.dims(1, a.type.shape.size()), is_max);
    return {site.write.reshape(found, site.result().shape)};
  };
}

Row extreme_of_all(bool is_max) {
  return [is_max](Site& site) -> std::vector<Tensor> {
    const Tensor a = site.tensor(0);
    require_some(site, a);
    return {extreme(site, a, all_dims(a), is_max)};
  };
}

// The extreme over a dim, and where it is.
std::vector<Tensor> extreme_and_index(Site& site, const Tensor& a, int64_t dim, bool is_max) {
  Writer& write = site.write;
  require_some(site, a);
  const TensorType scalar{a.type.dtype, {}};
  Shape shape = a.type.shape;
  shape.erase(shape.begin() + dim);
  const Tensor index = write.iota({DType::i64, a.type.shape}, dim);
  const Tensor start = is_max ? write.lowest(scalar) : write.highest(scalar);
  const Tensor beyond = write.highest({DType::i64, {}});
  const std::string region =
      Writer::region({a.type.dtype, DType::i64, a.type.dtype, DType::i64},
                     [is_max](Writer& inner, const std::vector<Tensor>& in) -> std::vector<Tensor> {
                       const Tensor first = wins(inner, in[0], in[1], in[2], in[3], is_max);
                       return {inner.select(first, in[0], in[2]), inner.select(first, in[1], in[3])};
                     });
  return write.ops("reduce", {a, index, start, beyond}, {{a.type.dtype, shape}, {DType::i64, shape}},
                   "dimensions = " + mlir_array({dim}), region);
}

Row index_of_extreme(bool is_max) {
  return [is_max](Site& site) -> std::vector<Tensor> {
    Tensor a = site.tensor(0);
    const bool over_all = std::holds_alternative<std::monostate>(argument(site.call(), 1));
    if (over_all || a.type.shape.empty()) a = site.write.reshape(a, {numel(a.type.shape)});
    const int64_t dim = over_all ? 0 : site.dim(1, a.type.shape.size());
    return {site.write.reshape(extreme_and_index(site, a, dim, is_max)[1], site.result().shape)};
  };
}

Row extreme_of_dim(bool is_max) {
  return [is_max](Site& site) -> std::vector<Tensor> {
    Tensor a = site.tensor(0);
    if (a.type.shape.empty()) a = site.write.reshape(a, {1});
    const std::vector<Tensor> found = extreme_and_index(site, a, site.dim(1, a.type.shape.size()), is_max);
    return {site.write.reshape(found[0], site.result(0).shape), site.write.reshape(found[1], site.result(1).shape)};
  };
}

// The mean of squared distances from the mean, of which `correction` are not free.
std::vector<Tensor> variance(Site& site) {
  Writer& write = site.write;
  const Tensor a = site.tensor(0);
  const Dims dims = site.dims(1, a.type.shape.size());
  int64_t count = 1;
  Dims kept;
  for (size_t d = 0; d < a.type.shape.size(); ++d) {
    const bool is_over = std::count(dims.begin(), dims.end(), static_cast<int64_t>(d));
    if (is_over) count *= a.type.shape[d];
    if (!is_over) kept.push_back(static_cast<int64_t>(d));
  }
  const Tensor sum = write.sum(a, dims);
  const Tensor mean = write.binary("divide", sum, write.like(sum, static_cast<double>(count)));
  const Tensor off = write.binary("subtract", a, write.broadcast(mean, a.type.shape, kept));
  const Tensor squares = write.sum(write.binary("multiply", off, off), dims);
  const double free = std::max(0.0, static_cast<double>(count) - real(site.call(), 2, 1));
  return {write.binary("divide", squares, write.like(squares, free))};
}

}  // namespace

void add_reductions(Table& table) {
  table["prims.sum"] = sum;
  table["prims.prod"] = product_over;
  table["prims.amax"] = extreme_over(true);
  table["prims.amin"] = extreme_over(false);
  table["aten.amax"] = extreme_over(true);
  table["aten.amin"] = extreme_over(false);
  table["aten.max"] = extreme_of_all(true);
  table["aten.min"] = extreme_of_all(false);
  table["aten.max.dim"] = extreme_of_dim(true);
  table["aten.min.dim"] = extreme_of_dim(false);
  table["aten.argmax"] = index_of_extreme(true);
  table["aten.argmin"] = index_of_extreme(false);
  table["prims.var"] = variance;
}

}  // namespace spmdx::emit
