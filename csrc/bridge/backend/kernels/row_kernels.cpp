// SPDX-License-Identifier: Apache-2.0
// Kernels on rows of a dim that is cut (embeddings, nll_loss, permutations), and of as_strided.
#include <ATen/Functions.h>

#include "bridge/backend/aten_names.h"
#include "bridge/backend/buffer.h"
#include "bridge/backend/kernels/indices.h"
#include "bridge/backend/own_kernels.h"

namespace spmdx::bridge {
namespace {

// Narrows dims of stride 0 to one element: elements that share an address are equal, and one of them is written.
at::Tensor without_repeats(at::Tensor tensor, const std::vector<int64_t>& strides) {
  for (size_t d = 0; d < strides.size(); ++d)
    if (strides[d] == 0 && tensor.size(static_cast<int64_t>(d)) > 1)
      tensor = tensor.narrow(static_cast<int64_t>(d), 0, 1);
  return tensor;
}

// (x, size, stride, offset, layout): as_strided of x laid out with the declared strides `layout`.
Compute prepare_as_strided(const Call& call) {
  using Ints = std::vector<int64_t>;
  return [size = own_argument<Ints>(call, 1), stride = own_argument<Ints>(call, 2),
          offset = own_argument<int64_t>(call, 3), layout = own_argument<Ints>(call, 4)](
             std::span<const BufferRef> inputs, std::span<const Param>) -> std::vector<at::Tensor> {
    const at::Tensor& source = tensor_of(inputs[0]);
    at::Tensor declared = at::empty_strided(source.sizes(), layout, source.options());
    without_repeats(declared, layout).copy_(without_repeats(source, layout));
    return {declared.as_strided(size, stride, offset)};
  };
}

// (table, indices, start, total): a lookup in a table of which rows [start, start + rows) are here. Indices of other
// rows give zeros; the sum over devices has all rows. With `total`, which may be absent, the number of rows of the
// whole table, wrong indices are reported as eager reports them.
Compute prepare_masked_embedding(const Call& call) {
  const int64_t total = call.args.size() > 3 ? own_argument<int64_t>(call, 3) : INT64_MAX;
  return [start = own_argument<int64_t>(call, 2), total](std::span<const BufferRef> inputs,
                                                         std::span<const Param>) -> std::vector<at::Tensor> {
    const at::Tensor &weight = tensor_of(inputs[0]), &indices = tensor_of(inputs[1]);
    check_indices(indices, 0, total, "embedding");
    const at::Tensor elsewhere = outside_window(indices, start, weight.size(0));
    at::Tensor rows = weight.index_select(0, in_window(indices, start, weight.size(0), 0).reshape(-1));
    std::vector<int64_t> shape = indices.sizes().vec();
    shape.insert(shape.end(), weight.sizes().begin() + 1, weight.sizes().end());
    return {rows.masked_fill_(elsewhere.reshape({-1, 1}), 0).reshape(shape)};
  };
}

// Row i of a dim becomes row sources[i], or zeros where that is negative. All these rows are on this device.
Compute prepare_permute_rows(const Call& call) {
  return [dim = own_argument<int64_t>(call, 1), sources = own_argument<std::vector<int64_t>>(call, 2)](
             std::span<const BufferRef> inputs, std::span<const Param>) -> std::vector<at::Tensor> {
    const at::Tensor& source = tensor_of(inputs[0]);
    std::vector<int64_t> shape = source.sizes().vec();
    shape.at(static_cast<size_t>(dim)) = static_cast<int64_t>(sources.size());
    at::Tensor result = at::zeros(shape, source.options());
    for (size_t i = 0; i < sources.size(); ++i)
      if (sources[i] >= 0) result.select(dim, static_cast<int64_t>(i)).copy_(source.select(dim, sources[i]));
    return {result};
  };
}

// The gradient of rows [start, start + rows) of a table. Gradients of other rows and of the padding row are added to a
// spare row, which is dropped.
Compute prepare_embedding_rows(const Call& call) {
  return [start = own_argument<int64_t>(call, 2), rows = own_argument<int64_t>(call, 3),
          padding = own_argument<int64_t>(call, 5), by_frequency = own_argument<bool>(call, 6)](
             std::span<const BufferRef> inputs, std::span<const Param>) -> std::vector<at::Tensor> {
    const at::Tensor& indices = tensor_of(inputs[1]);
    at::Tensor local = in_window(indices, start, rows, rows);
    if (padding >= 0) local.masked_fill_(indices.eq(padding), rows);
    return {at::embedding_dense_backward(tensor_of(inputs[0]), local, rows + 1, rows, by_frequency).narrow(0, 0, rows)};
  };
}

// For each row −w·x of its target class, and w; both are 0 if that class is not here or is ignored.
Compute prepare_nll_rows(const Call& call) {
  const auto* weighted = std::get_if<TensorArg>(&call.args.at(2));
  const int weight = weighted ? static_cast<int>(weighted->input) : -1;
  const at::ScalarType dtype = to_scalar_type(call.outputs.at(0).dtype);
  return [weight, dtype, ignored = own_argument<int64_t>(call, 3), start = own_argument<int64_t>(call, 4),
          total = own_argument<int64_t>(call, 5)](std::span<const BufferRef> inputs,
                                                  std::span<const Param>) -> std::vector<at::Tensor> {
    const at::Tensor &scores = tensor_of(inputs[0]), &target = tensor_of(inputs[1]);
    const at::Tensor skipped = target.eq(ignored);
    check_indices(target.masked_fill(skipped, 0), 0, total, "nll_loss");
    const at::Tensor local = in_window(target, start, scores.size(1), 0);
    const at::Tensor absent = outside_window(target, start, scores.size(1)).logical_or_(skipped);
    at::Tensor rows = scores.gather(1, local.unsqueeze(1)).squeeze(1).to(dtype).neg();
    at::Tensor weights = at::ones_like(rows);
    if (weight >= 0) {
      weights = tensor_of(inputs[static_cast<size_t>(weight)]).index_select(0, local.reshape(-1)).view(local.sizes());
      weights = weights.to(dtype);
      rows = rows.mul_(weights);
    }
    return {rows.masked_fill_(absent, 0), weights.masked_fill(absent, 0)};
  };
}

// Adds a dim, of which positions [start, start + count) are here. Each row's value goes to the position that `target`
// says; all other positions are 0.
Compute prepare_put_rows(const Call& call) {
  return [dim = own_argument<int64_t>(call, 2), start = own_argument<int64_t>(call, 3),
          count = own_argument<int64_t>(call, 4), shape = call.outputs.at(0).shape](
             std::span<const BufferRef> inputs, std::span<const Param>) -> std::vector<at::Tensor> {
    const at::Tensor &rows = tensor_of(inputs[0]), &target = tensor_of(inputs[1]);
    at::Tensor result = at::zeros(shape, rows.options());
    if (count == 0) return {result};
    const at::Tensor values = rows.masked_fill(outside_window(target, start, count), 0);
    result.scatter_(dim, in_window(target, start, count, 0).unsqueeze(dim), values.unsqueeze(dim));
    return {result};
  };
}

const OwnKernels row_kernels = {
    {"spmdx.as_strided", prepare_as_strided},
    {"spmdx.embedding_rows", prepare_embedding_rows},
    {"spmdx.masked_embedding", prepare_masked_embedding},
    {"spmdx.nll_rows", prepare_nll_rows},
    {"spmdx.permute_rows", prepare_permute_rows},
    {"spmdx.take_rows", prepare_permute_rows},
    {"spmdx.put_rows", prepare_put_rows},
};

}  // namespace
}  // namespace spmdx::bridge
