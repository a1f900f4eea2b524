// SPDX-License-Identifier: Apache-2.0
// The kernel of spmdx.window: runs an indexing op of ATen for those indices that point into a part of the dim.
#include <ATen/Functions.h>

#include <map>
#include "bridge/backend/aten_facts.h"
#include "bridge/backend/aten_kernel.h"
#include "bridge/backend/buffer.h"
#include "bridge/backend/kernels/indices.h"
#include "bridge/backend/own_kernels.h"
#include "bridge/backend/shard_device.h"
#include "rules/rows/indexing.h"
#include "rules/rows/windows.h"

namespace spmdx::bridge {
namespace {

struct Window {
  std::string op;
  size_t index = 0;  // the operand that holds the indices
  int64_t dim = 0, start = 0, total = 0, extent = 0;
  std::shared_ptr<Kernel> kernel;
  size_t results = 1;
  bool adds = false;  // the op adds rows to zeros, whatever the first operand holds
};

// `outside`, which has the shape of the indices, in a shape that broadcasts to the result of a read.
at::Tensor mask_of(const Window& window, const at::Tensor& outside, const at::Tensor& result) {
  if (base_name(window.op) == "aten.gather") return outside;
  std::vector<int64_t> shape =
      base_name(window.op) == "aten.index_select" ? std::vector<int64_t>{outside.numel()} : outside.sizes().vec();
  const int64_t trailing = result.dim() - window.dim - static_cast<int64_t>(shape.size());
  shape.insert(shape.end(), static_cast<size_t>(std::max<int64_t>(trailing, 0)), 1);
  return outside.reshape(shape);
}

at::Tensor run(const Window& window, std::vector<BufferRef> inputs, std::span<const Param> params) {
  std::vector<BufferRef> outputs(window.results);
  window.kernel->run(inputs, params, outputs, -1);
  return tensor_of(outputs[0]);
}

// Throws for wrong indices. Negative ones count from the end in index and index_put, and are wrong in other ops.
at::Tensor checked_indices(const Window& window, const at::Tensor& given) {
  const std::string_view base = base_name(window.op);
  const bool from_end = base == "aten.index" || base == "aten.index_put" || base == "aten._index_put_impl";
  check_indices(given, from_end ? -window.total : 0, window.total, window.op.c_str() + 5);
  return from_end ? at::where(given.lt(0), at::add(given, window.total), given) : given;
}

std::vector<at::Tensor> read(const Window& window, std::span<const BufferRef> inputs, std::span<const Param> params) {
  const at::Tensor indices = checked_indices(window, tensor_of(inputs[window.index]));
  std::vector<BufferRef> operands(inputs.begin(), inputs.end());
  operands[window.index] = buffer_of(in_window(indices, window.start, window.extent, 0));
  at::Tensor result = run(window, std::move(operands), params);
  return {result.masked_fill(mask_of(window, outside_window(indices, window.start, window.extent), result), 0)};
}

// The first operand with a spare row; zeros of that size for an op that adds rows.
at::Tensor with_spare_row(const Window& window, const at::Tensor& self) {
  if (!window.adds) return at::cat({self, self.narrow(window.dim, 0, 1)}, window.dim);
  std::vector<int64_t> sizes = self.sizes().vec();
  ++sizes[static_cast<size_t>(window.dim)];
  return at::zeros(sizes, self.options());
}

// Writes that are meant for other devices go to the spare row, which is then dropped.
std::vector<at::Tensor> write(const Window& window, std::span<const BufferRef> inputs, std::span<const Param> params) {
  const at::Tensor indices = checked_indices(window, tensor_of(inputs[window.index]));
  std::vector<BufferRef> operands(inputs.begin(), inputs.end());
  operands[0] = buffer_of(with_spare_row(window, tensor_of(inputs[0])));
  operands[window.index] = buffer_of(in_window(indices, window.start, window.extent, window.extent));
  return {run(window, std::move(operands), params).narrow(window.dim, 0, window.extent)};
}

// A write that replaces rows: those that are meant for this part, in their order.
Write write_rows(const Window& window, uint32_t source) {
  return [=](at::Tensor& target, std::span<const BufferRef> inputs, std::span<const Param>) {
    const at::Tensor indices = checked_indices(window, tensor_of(inputs[window.index]));
    std::vector<int64_t> sizes = target.sizes().vec();
    const auto at = sizes.erase(sizes.begin() + window.dim);
    sizes.insert(at, indices.sizes().begin(), indices.sizes().end());
    at::Tensor rows = tensor_of(inputs[source]).expand(sizes);
    rows = indices.dim() == 0 ? rows.unsqueeze(window.dim) : rows.flatten(window.dim, window.dim + indices.dim() - 1);
    const at::Tensor here = outside_window(indices, window.start, window.extent).logical_not().flatten().nonzero();
    const at::Tensor chosen = here.squeeze(1), places = indices.flatten().index_select(0, chosen).sub(window.start);
    if (base_name(window.op) == "aten.index_copy") {
      target.index_copy_(window.dim, places.to(at::kLong), rows.index_select(window.dim, chosen));
      return;
    }
    c10::List<std::optional<at::Tensor>> list;  // index_put has kernels for more dtypes
    list.resize(static_cast<size_t>(window.dim), std::nullopt);
    list.push_back(places.to(at::kLong));
    target.index_put_(list, rows.index_select(window.dim, chosen));
  };
}

// The operand that a call of index_copy or index_put writes; kNone where it is of another dtype than what it replaces.
uint32_t source_of(const Call& inner) {
  const size_t argument = base_name(inner.op) == "aten.index_copy" ? 3 : 2;
  const auto source = own_argument<TensorArg>(inner, argument).input;
  return inner.inputs.at(source).dtype == inner.inputs.at(0).dtype ? source : kNone;
}

std::unique_ptr<Kernel> prepare_window(const Call& call) {
  Call inner = rules::windowed_call(call);
  Window window;
  window.op = inner.op;
  window.adds = rules::adds_rows(inner);
  window.index = static_cast<size_t>(own_argument<int64_t>(call, rules::kWindowIndex));
  window.dim = own_argument<int64_t>(call, rules::kWindowDim);
  window.start = own_argument<int64_t>(call, rules::kWindowStart);
  window.total = own_argument<int64_t>(call, rules::kWindowTotal);
  window.extent = inner.inputs.at(0).shape.at(static_cast<size_t>(window.dim));
  const Access access = facts_of(inner.op).window;
  internal_check(access != Access::none, "no window of " + inner.op);
  const bool writes = access == Access::write;
  if (rules::replaces_rows(inner) && shard_device().is_cpu() && source_of(inner) != kNone)  // a GPU would be waited for
    return kernel_of(call, write_rows(window, source_of(inner)));
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
