// SPDX-License-Identifier: Apache-2.0
// Kernels of the ops that ATen lacks: as_strided over a declared layout, rows of a cut table, losses of cut
// classes, products of groups.
#include "bridge/own_kernels.h"

#include <ATen/Functions.h>

#include <algorithm>

#include "bridge/aten_kernel.h"
#include "bridge/place.h"

namespace spmdx::bridge {
namespace {

class OwnKernel final : public Kernel {
 public:
  OwnKernel(const Call& call, Compute compute)
      : name_(call.op), expected_(call.outputs), compute_(std::move(compute)) {}

  void run(std::span<const BufferRef> inputs, std::span<const Param> params, std::span<BufferRef> outputs,
           int) override {
    KernelGuard guard;
    std::vector<at::Tensor> results = compute_(inputs, params);
    internal_check(results.size() == expected_.size(), name_ + " made another number of results than it has");
    for (size_t i = 0; i < results.size(); ++i) {
      if (expected_[i].dtype == DType::unknown) continue;
      check(results[i], expected_[i]);
      outputs[i] = buffer_of(std::move(results[i]));
    }
  }

 private:
  void check(const at::Tensor& result, const TensorType& expected) const {
    if (result.sizes() == c10::IntArrayRef(expected.shape) && result.scalar_type() == to_scalar_type(expected.dtype))
      return;
    throw InternalError(name_ + " made " + std::string(c10::toString(result.scalar_type())) +
                        str(result.sizes().vec()) + " where its plan expects " + str(expected));
  }

  std::string name_;
  std::vector<TensorType> expected_;
  Compute compute_;
};

// Elements that share an address (stride 0) are equal: one of them is written.
at::Tensor without_repeats(at::Tensor tensor, const std::vector<int64_t>& strides) {
  for (size_t d = 0; d < strides.size(); ++d)
    if (strides[d] == 0 && tensor.size(static_cast<int64_t>(d)) > 1)
      tensor = tensor.narrow(static_cast<int64_t>(d), 0, 1);
  return tensor;
}

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

// Rows [start, start + rows) of a table are here; indices of other rows give zeros, for a sum to fill in. A fourth
// argument, the number of rows of the whole table, lets bad indices be reported as an unsharded lookup does.
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

// Part i of a dim is part sources[i], or zeros where that is negative: where no rows come from other devices.
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

// Gradients of rows [start, start + rows) of a table: all others, and the padding row, go to a row that is skipped.
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

// −w·x of the target class and w, for the rows whose class is here and is not ignored; 0 for all others.
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

// Each row's value at its own position of the new dim, which begins at `start` here; 0 everywhere else.
Compute prepare_place(const Call& call) {
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

}  // namespace

double own_number(const Call& call, size_t index, std::span<const Param> params, double missing) {
  if (index >= call.args.size()) return missing;
  const Arg& arg = call.args[index];
  if (const auto* real = std::get_if<double>(&arg)) return *real;
  if (const auto* whole = std::get_if<int64_t>(&arg)) return static_cast<double>(*whole);
  if (const auto* param = std::get_if<RealParam>(&arg)) return params[param->index].real;
  if (const auto* param = std::get_if<IntParam>(&arg)) return static_cast<double>(params[param->index].integer);
  return missing;
}

at::Tensor outside_window(const at::Tensor& indices, int64_t start, int64_t extent) {
  return indices.lt(start).logical_or_(indices.ge(start + extent));
}

at::Tensor in_window(const at::Tensor& indices, int64_t start, int64_t extent, int64_t elsewhere) {
  return at::sub(indices, start).masked_fill_(outside_window(indices, start, extent), elsewhere);
}

void check_indices(const at::Tensor& indices, int64_t least, int64_t total, const char* what) {
  if (indices.numel() == 0) return;
  if (!indices.is_cpu()) {  // looked at where they are: the host waits for nothing
    at::_assert_async(indices.ge(least).logical_and_(indices.lt(total)).all(),
                      std::string("index out of range in self: ") + what + " expected indices from " +
                          std::to_string(least) + " to " + std::to_string(total - 1) +
                          ". Check the size that the indices point into.");
    return;
  }
  const auto [lowest, highest] = indices.aminmax();
  TORCH_CHECK_INDEX(lowest.item<int64_t>() >= least && highest.item<int64_t>() < total,
                    "index out of range in self: ", what, " got indices from ", lowest.item<int64_t>(), " to ",
                    highest.item<int64_t>(), ". Expected ", least, " to ", total - 1,
                    ". Check the size that the indices point into.");
}

const OwnKernels& table_kernels() {
  static const OwnKernels kernels = {
      {"spmdx.as_strided", prepare_as_strided},
      {"spmdx.embedding_rows", prepare_embedding_rows},
      {"spmdx.masked_embedding", prepare_masked_embedding},
      {"spmdx.nll_rows", prepare_nll_rows},
      {"spmdx.permute_rows", prepare_permute_rows},
      {"spmdx.take_rows", prepare_permute_rows},
      {"spmdx.place", prepare_place},
  };
  return kernels;
}

std::unique_ptr<Kernel> prepare_own(const Call& call) {
  for (const OwnKernels* kernels : {&table_kernels(), &window_kernels(), &ctc_kernels(), &grouped_kernels(),
                                    &stencil_kernels(), &attention_kernels(), &flash_kernels()})
    if (const auto known = kernels->find(call.op); known != kernels->end())
      return std::make_unique<OwnKernel>(call, known->second(call));
  return nullptr;
}

}  // namespace spmdx::bridge
