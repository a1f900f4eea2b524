// SPDX-License-Identifier: Apache-2.0
// The kernel of spmdx.window: runs an indexing op of ATen for those indices that point into a part of the dim.
#include <ATen/Functions.h>

#include "bridge/backend/aten_facts.h"
#include "bridge/backend/aten_kernel.h"
#include "bridge/backend/buffer.h"
#include "bridge/backend/kernels/indices.h"
#include "bridge/backend/kernels/window_writes.h"
#include "bridge/backend/own_kernels.h"
#include "bridge/backend/shard_device.h"
#include "graph/args.h"
#include "rules/rows/windows.h"

namespace spmdx::bridge {
namespace {

// An indexing op in its window, with ATen's kernel for it.
struct Indexing : Window {
  std::shared_ptr<Kernel> kernel;
};

// `outside`, which has the shape of the indices, in a shape that broadcasts to the result of a read.
at::Tensor mask_of(const Window& window, const at::Tensor& outside, const at::Tensor& result) {
  const std::string_view base = base_name(window.op);
  if (base == "aten.gather") return outside;
  const bool selects = base == "aten.index_select";
  std::vector<int64_t> shape = selects ? std::vector<int64_t>{outside.numel()} : outside.sizes().vec();
  const int64_t trailing = result.dim() - (selects ? window.dim + 1 : window.place + window.index_rank);
  shape.insert(shape.end(), static_cast<size_t>(std::max<int64_t>(trailing, 0)), 1);
  return outside.reshape(shape);
}

// Where the dims of the indices of index and index_put are: side by side, or in front.
void place_indices(Window& window, const Call& inner) {
  const auto* list = std::get_if<TensorListArg>(&argument(inner, 1));
  if (!list) return;
  std::vector<int64_t> at;
  for (int64_t d = 0; d < std::ssize(list->inputs); ++d) {
    const uint32_t operand = list->inputs[static_cast<size_t>(d)];
    if (operand == kNone) continue;
    at.push_back(d);
    window.index_rank = std::max(window.index_rank, std::ssize(inner.inputs.at(operand).shape));
  }
  window.place = at.back() - at.front() + 1 == std::ssize(at) ? at.front() : 0;
}

at::Tensor run(const Indexing& window, std::vector<BufferRef> inputs, std::span<const Param> params) {
  std::vector<BufferRef> outputs(1);
  window.kernel->run(inputs, params, outputs, -1);
  return tensor_of(outputs[0]);
}

std::vector<at::Tensor> read(const Indexing& window, std::span<const BufferRef> inputs, std::span<const Param> params) {
  const at::Tensor indices = checked_indices(window, tensor_of(inputs[window.index]));
  std::vector<BufferRef> operands(inputs.begin(), inputs.end());
  operands[window.index] = buffer_of(in_window(indices, window.start, window.extent, 0));
  at::Tensor result = run(window, std::move(operands), params);
  return {result.masked_fill(mask_of(window, outside_window(indices, window.start, window.extent), result), 0)};
}

// The first operand with a spare row.
at::Tensor with_spare_row(const Window& window, const at::Tensor& self) {
  return at::cat({self, self.narrow(window.dim, 0, 1)}, window.dim);
}

// Writes that are meant for other devices go to the spare row, which is then dropped.
std::vector<at::Tensor> write(const Indexing& window, std::span<const BufferRef> inputs,
                              std::span<const Param> params) {
  const at::Tensor indices = checked_indices(window, tensor_of(inputs[window.index]));
  std::vector<BufferRef> operands(inputs.begin(), inputs.end());
  operands[0] = buffer_of(with_spare_row(window, tensor_of(inputs[0])));
  operands[window.index] = buffer_of(in_window(indices, window.start, window.extent, window.extent));
  return {run(window, std::move(operands), params).narrow(window.dim, 0, window.extent)};
}

std::unique_ptr<Kernel> prepare_window(const Call& call) {
  Call inner = rules::windowed_call(call);
  Indexing window;
  window.op = inner.op;
  window.index = static_cast<size_t>(own_argument<int64_t>(call, rules::kWindowIndex));
  window.dim = own_argument<int64_t>(call, rules::kWindowDim);
  window.start = own_argument<int64_t>(call, rules::kWindowStart);
  window.total = own_argument<int64_t>(call, rules::kWindowTotal);
  window.extent = inner.inputs.at(0).shape.at(static_cast<size_t>(window.dim));
  place_indices(window, inner);
  const Access access = facts_of(inner.op).window;
  internal_check(access != Access::none, "no window of " + inner.op);
  const bool writes = access == Access::write;
  if (shard_device().is_cpu())
    if (Write in_place = write_in_window(window, inner)) return kernel_of(call, std::move(in_place));
  if (writes) {
    ++inner.inputs[0].shape[static_cast<size_t>(window.dim)];
    ++inner.outputs.at(0).shape[static_cast<size_t>(window.dim)];
  }
  window.kernel = prepare_aten(inner);
  return kernel_of(call, [window, writes](std::span<const BufferRef> inputs, std::span<const Param> params) {
    return writes ? write(window, inputs, params) : read(window, inputs, params);
  });
}

const OwnKernels window_kernels = {{"spmdx.window", prepare_window}};

}  // namespace
}  // namespace spmdx::bridge
