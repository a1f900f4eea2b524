// SPDX-License-Identifier: Apache-2.0
// A table of them. Each says which calls it knows; for all others PyTorch's is called.
#include "bridge/record/layouts/own_metas.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/native/TypeProperties.h>
#include <ATen/ops/cat_meta_dispatch.h>

#include <algorithm>
#include <map>
#include <vector>

#include "bridge/backend/shard_device.h"
#include "bridge/tensor/meta.h"

namespace spmdx::bridge {
namespace {

at::Tensor empty_meta(c10::ScalarType dtype, c10::IntArrayRef sizes) {
  return at::detail::empty_strided_meta(sizes, c10::contiguous_strides(sizes), dtype);
}
at::Tensor empty_meta(const at::Tensor& like, c10::IntArrayRef sizes) { return empty_meta(like.scalar_type(), sizes); }
// Without the bits of a conjugate or negative operand.
at::Tensor empty_dense(const at::Tensor& like) {
  return at::detail::empty_strided_meta(like.sizes(), dense_like(like).strides(), like.scalar_type());
}
bool are_indices(const at::Tensor& index) {
  return index.scalar_type() == at::kLong || index.scalar_type() == at::kInt;
}

bool knows_condition(const Stack& stack) { return stack[0].toTensor().scalar_type() == at::kBool; }
// How it lies is corrected as of all pointwise ops.
at::Tensor chosen(const at::Tensor& condition, const at::Tensor& self, const at::Tensor& other) {
  const auto state = at::native::update_result_type_state(other, at::native::update_result_type_state(self, {}));
  const auto sizes = at::infer_size_dimvector(condition.sizes(), at::infer_size_dimvector(self.sizes(), other.sizes()));
  return empty_meta(at::native::result_type(state), sizes);
}
at::Tensor written_at(const at::Tensor& self, const c10::List<std::optional<at::Tensor>>&, const at::Tensor&, bool) {
  return empty_dense(self);
}
at::Tensor written_at_checked(const at::Tensor& self, const c10::List<std::optional<at::Tensor>>& indices,
                              const at::Tensor& values, bool accumulate, bool) {
  return written_at(self, indices, values, accumulate);
}
bool knows_rows(const Stack& stack) {
  const at::Tensor &self = stack[0].toTensor(), &index = stack[2].toTensor();
  const int64_t dim = stack[1].toInt(), rank = self.dim();
  return dim >= -rank && dim < rank && index.dim() == 1 && are_indices(index);
}
at::Tensor rows_at(const at::Tensor& self, int64_t dim, const at::Tensor& index) {
  std::vector<int64_t> sizes = self.sizes().vec();
  sizes[static_cast<size_t>(at::maybe_wrap_dim(dim, self.dim()))] = index.numel();
  return empty_meta(self, sizes);
}
bool knows_weight(const Stack& stack) { return stack[0].toTensor().dim() == 2 && are_indices(stack[1].toTensor()); }
at::Tensor rows_of_weight(const at::Tensor& weight, const at::Tensor& indices, int64_t, bool, bool) {
  std::vector<int64_t> sizes = indices.sizes().vec();
  sizes.push_back(weight.size(1));
  return empty_meta(weight, sizes);
}

bool knows_matrices(const Stack& stack) {
  const at::Tensor &x1 = stack[0].toTensor(), &x2 = stack[1].toTensor();
  return x1.dim() == 2 && x2.dim() == 2 && x1.size(1) == x2.size(1) && x1.scalar_type() == x2.scalar_type();
}
at::Tensor distances(const at::Tensor& x1, const at::Tensor& x2) { return empty_meta(x1, {x1.size(0), x2.size(0)}); }

// Those of a loss, by (grad, x, target, …).
bool knows_same_sizes(const Stack& stack) {
  const at::Tensor &x = stack[1].toTensor(), &target = stack[2].toTensor();
  return x.sizes() == target.sizes() && x.scalar_type() == target.scalar_type() &&
         x.scalar_type() == stack[0].toTensor().scalar_type();
}
at::Tensor smooth_l1_gradient(const at::Tensor&, const at::Tensor& self, const at::Tensor&, int64_t, double) {
  return empty_meta(self, self.sizes());
}

// (x, shifts, dims). GPUs make rows.
bool knows_roll(const Stack& stack) {
  const int64_t rank = stack[0].toTensor().dim();
  const std::vector<int64_t> dims = stack[2].toIntVector();
  const size_t shifts = stack[1].toIntVector().size();
  return shard_device().is_cpu() && shifts == (dims.empty() ? 1 : dims.size()) &&
         std::all_of(dims.begin(), dims.end(), [rank](int64_t dim) { return dim >= -rank && dim < rank; });
}
// Two parts of a dim change places, one dim after the other.
at::Tensor rolled(const at::Tensor& self, c10::IntArrayRef shifts, c10::IntArrayRef dims) {
  if (dims.empty()) return empty_meta(self, self.sizes());
  if (self.numel() == 0) return empty_dense(self);
  at::Tensor x = self;
  for (size_t i = 0; i < dims.size(); ++i) {
    const int64_t size = x.size(dims[i]), start = ((size - shifts[i]) % size + size) % size;
    const at::Tensor end = x.narrow(dims[i], start, size - start), begin = x.narrow(dims[i], 0, start);
    x = at::meta::cat(at::ITensorListRef({end, begin}), dims[i]);
  }
  return x;
}

bool knows_end(const Stack& stack) { return stack[0].isInt() && stack[0].toInt() >= 0; }
at::Tensor counted_to(const at::Scalar& end, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                      std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_meta({end.toLong()}, {1}, dtype.value_or(at::kLong));
}

struct OwnMeta {
  c10::KernelFunction kernel;
  bool (*knows)(const Stack& stack) = nullptr;  // null: every call
};

const std::map<std::string_view, OwnMeta> kOwnMetas = {
    {"aten._euclidean_dist", {boxed<distances>(), knows_matrices}},
    {"aten._index_put_impl", {boxed<written_at_checked>()}},
    {"aten.arange", {boxed<counted_to>(), knows_end}},
    {"aten.embedding", {boxed<rows_of_weight>(), knows_weight}},
    {"aten.index_put", {boxed<written_at>()}},
    {"aten.index_select", {boxed<rows_at>(), knows_rows}},
    {"aten.roll", {boxed<rolled>(), knows_roll}},
    {"aten.smooth_l1_loss_backward", {boxed<smooth_l1_gradient>(), knows_same_sizes}},
    {"aten.where.self", {boxed<chosen>(), knows_condition}},
};

}  // namespace

const c10::KernelFunction* own_meta(std::string_view op, const Stack& stack) {
  const auto found = kOwnMetas.find(op);
  if (found == kOwnMetas.end()) return nullptr;
  const OwnMeta& row = found->second;
  return !row.knows || row.knows(stack) ? &row.kernel : nullptr;
}

}  // namespace spmdx::bridge
