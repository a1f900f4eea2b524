// SPDX-License-Identifier: Apache-2.0
// Kernels of the ops that ATen lacks: as_strided over a declared layout, rows of a cut table, rows that change places.
#include <ATen/Functions.h>

#include <algorithm>
#include <functional>
#include <map>

#include "base/error.h"
#include "bridge/aten_backend.h"
#include "bridge/aten_kernel.h"
#include "bridge/compat.h"

namespace spmdx::bridge {
namespace {

using Compute = std::function<at::Tensor(std::span<const BufferRef> inputs)>;

class OwnKernel final : public Kernel {
 public:
  OwnKernel(const Call& call, Compute compute)
      : name_(call.op), expected_(call.outputs.at(0)), compute_(std::move(compute)) {}

  void run(std::span<const BufferRef> inputs, std::span<const Param>, std::span<BufferRef> outputs, int) override {
    KernelGuard guard;
    at::Tensor result = compute_(inputs);
    internal_check(result.sizes() == c10::IntArrayRef(expected_.shape),
                   name_ + " made " + str(result.sizes().vec()) + " where its plan expects " + str(expected_));
    outputs[0] = buffer_of(std::move(result));
  }

 private:
  std::string name_;
  TensorType expected_;
  Compute compute_;
};

template <class T>
const T& argument(const Call& call, size_t index) {
  internal_check(index < call.args.size() && std::holds_alternative<T>(call.args[index]),
                 call.op + " has no argument " + std::to_string(index) + " of the kind it needs");
  return std::get<T>(call.args[index]);
}

// Elements that share an address (stride 0) are equal: one of them is written.
at::Tensor without_repeats(at::Tensor tensor, const std::vector<int64_t>& strides) {
  for (size_t d = 0; d < strides.size(); ++d)
    if (strides[d] == 0 && tensor.size(static_cast<int64_t>(d)) > 1)
      tensor = tensor.narrow(static_cast<int64_t>(d), 0, 1);
  return tensor;
}

Compute prepare_as_strided(const Call& call) {
  using Ints = std::vector<int64_t>;
  return [size = argument<Ints>(call, 1), stride = argument<Ints>(call, 2), offset = argument<int64_t>(call, 3),
          layout = argument<Ints>(call, 4)](std::span<const BufferRef> inputs) {
    const at::Tensor& source = tensor_of(inputs[0]);
    at::Tensor declared = at::empty_strided(source.sizes(), layout, source.options());
    without_repeats(declared, layout).copy_(without_repeats(source, layout));
    return declared.as_strided(size, stride, offset);
  };
}

// Rows [start, start + rows) of a table are here; indices of other rows give zeros, for a sum to fill in. A fourth
// argument, the number of rows of the whole table, lets bad indices be reported as an unsharded lookup does.
Compute prepare_masked_embedding(const Call& call) {
  const int64_t total = call.args.size() > 3 ? argument<int64_t>(call, 3) : INT64_MAX;
  return [start = argument<int64_t>(call, 2), total](std::span<const BufferRef> inputs) {
    const at::Tensor &weight = tensor_of(inputs[0]), &indices = tensor_of(inputs[1]);
    if (indices.numel() > 0) {
      const auto [least, most] = indices.aminmax();
      TORCH_CHECK_INDEX(least.item<int64_t>() >= 0 && most.item<int64_t>() < total,
                        "index out of range in self: embedding got indices from ", least.item<int64_t>(), " to ",
                        most.item<int64_t>(), ". Expected 0 to ", total - 1, ". Check the vocabulary size.");
    }
    const at::Tensor local = at::sub(indices, start);
    const at::Tensor elsewhere = at::logical_or(local.lt(0), local.ge(weight.size(0)));
    at::Tensor rows = weight.index_select(0, local.masked_fill(elsewhere, 0).reshape(-1));
    std::vector<int64_t> shape = indices.sizes().vec();
    shape.insert(shape.end(), weight.sizes().begin() + 1, weight.sizes().end());
    return rows.masked_fill_(elsewhere.reshape({-1, 1}), 0).reshape(shape);
  };
}

// Part i of a dim is part sources[i], or zeros where that is negative: where nobody cut the dim.
Compute prepare_permute_rows(const Call& call) {
  return [dim = argument<int64_t>(call, 1),
          sources = argument<std::vector<int64_t>>(call, 2)](std::span<const BufferRef> inputs) {
    const at::Tensor& source = tensor_of(inputs[0]);
    at::Tensor result = at::zeros(source.sizes(), source.options());
    for (size_t i = 0; i < sources.size(); ++i)
      if (sources[i] >= 0) result.select(dim, static_cast<int64_t>(i)).copy_(source.select(dim, sources[i]));
    return result;
  };
}

const std::map<std::string_view, Compute (*)(const Call&)> kOwnKernels = {
    {"spmdx.as_strided", prepare_as_strided},
    {"spmdx.masked_embedding", prepare_masked_embedding},
    {"spmdx.permute_rows", prepare_permute_rows},
};

}  // namespace

std::unique_ptr<Kernel> prepare_own(const Call& call) {
  const auto known = kOwnKernels.find(call.op);
  if (known == kOwnKernels.end()) return nullptr;
  return std::make_unique<OwnKernel>(call, known->second(call));
}

}  // namespace spmdx::bridge
