// SPDX-License-Identifier: Apache-2.0
// Products of matrices.
#include "emit/rows/site.h"

namespace spmdx::emit {
namespace {

std::string numbers(const std::vector<int64_t>& batch, int64_t left, int64_t right, DType dtype) {
  return "dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = " + mlir_list(batch) +
         ", rhs_batching_dimensions = " + mlir_list(batch) + ", lhs_contracting_dimensions = " + mlir_list({left}) +
         ", rhs_contracting_dimensions = " + mlir_list({right}) + ">, " + precision(dtype);
}

// Floats of 16 bits are added up in f32, as PyTorch's kernels do.
Tensor product(Site& site, const std::vector<int64_t>& batch, int64_t left, int64_t right) {
  const Tensor a = site.tensor(0), b = site.tensor(1);
  const DType dtype = a.type.dtype;
  const bool is_short = is_floating(dtype) && itemsize(dtype) < 4;
  const TensorType made{is_short ? DType::f32 : dtype, site.result().shape};
  return site.write.convert(site.write.op("dot_general", {a, b}, made, numbers(batch, left, right, dtype)), dtype);
}

std::vector<Tensor> mm(Site& site) { return {product(site, {}, 1, 0)}; }
std::vector<Tensor> bmm(Site& site) { return {product(site, {0}, 2, 1)}; }
std::vector<Tensor> mv(Site& site) { return {product(site, {}, 1, 0)}; }
std::vector<Tensor> dot(Site& site) { return {product(site, {}, 0, 0)}; }

}  // namespace

void add_products(Table& table) {
  table["aten.mm"] = mm;
  table["aten.bmm"] = bmm;
  table["aten.mv"] = mv;
  table["aten.dot"] = dot;
}

}  // namespace spmdx::emit
