// SPDX-License-Identifier: Apache-2.0
// Sorts, by PyTorch's order of numbers.
#include "emit/rows/site.h"

namespace spmdx::emit {
namespace {

// Of a tensor along a dim: the values in order, and where they were.
std::vector<Tensor> sorted_by(Site& site, size_t dim_arg, size_t descending_arg) {
  Writer& write = site.write;
  const Tensor a = site.tensor(0);
  if (a.type.shape.empty() || numel(a.type.shape) == 0)
    return {a, write.constant({DType::i64, a.type.shape}, int64_t{0})};
  const int64_t dim = site.dim(dim_arg, a.type.shape.size(), -1);
  const bool descending = boolean(site.call(), descending_arg, false);
  const std::string region =
      Writer::region({a.type.dtype, a.type.dtype, DType::i64, DType::i64},
                     [descending](Writer& inner, const std::vector<Tensor>& in) -> std::vector<Tensor> {
                       return {comes_before(inner, in[0], in[1], descending)};
                     });
  const Tensor index = write.iota({DType::i64, a.type.shape}, dim);
  return write.ops("sort", {a, index}, {a.type, index.type},
                   "dimension = " + std::to_string(dim) + " : i64, is_stable = true", region);
}

std::vector<Tensor> sorted(Site& site) { return sorted_by(site, 1, 2); }
std::vector<Tensor> stably_sorted(Site& site) { return sorted_by(site, 2, 3); }

}  // namespace

void add_sorts(Table& table) {
  table["aten.sort"] = sorted;
  table["aten.sort.stable"] = stably_sorted;
}

}  // namespace spmdx::emit
