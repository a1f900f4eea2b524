// SPDX-License-Identifier: Apache-2.0
// Ops whose result shape depends on data: their operands are computed now and the op runs on the CPU.
#include <ATen/ExpandUtils.h>
#include <ATen/ops/nonzero.h>

#include "bridge/backend/shard_device.h"
#include "bridge/record/boxed_kernel.h"
#include "bridge/record/call/handlers.h"
#include "bridge/record/call/ivalue.h"
#include "bridge/record/call/op_info.h"
#include "bridge/record/host_run.h"
#include "bridge/record/operands.h"
#include "bridge/recorder/recorder.h"
#include "bridge/tensor/tensor.h"

namespace spmdx::bridge {
namespace {

bool host_only(const OpInfo& info, Stack* stack) {
  run_on_host(info, stack);
  return true;
}

bool is_mask(const at::Tensor& index) {
  return index.defined() && (index.scalar_type() == at::kBool || index.scalar_type() == at::kByte);
}

// Replaces a mask by index tensors, one for each of its dims. Only the mask is computed now.
void append_positions(c10::List<std::optional<at::Tensor>>& indices, const at::Tensor& mask) {
  at::Tensor positions;
  const at::Tensor host = on_host(mask, false);
  {
    KernelGuard kernels_only;
    positions = at::nonzero(host);
  }
  for (int64_t d = 0; d < mask.dim(); ++d) {
    KernelGuard kernels_only;
    indices.push_back(Recorder::instance().upload(positions.select(1, d)));
  }
}

bool index_with_mask(const OpInfo& info, Stack* stack) {
  const IValues args = arguments(info, *stack);
  bool masked = false;
  for (const auto& item : args[1].toListRef()) masked |= item.isTensor() && is_mask(item.toTensor());
  if (!masked) return false;
  c10::List<std::optional<at::Tensor>> indices;
  const at::Tensor self = args[0].toTensor();
  for (const auto& item : args[1].toListRef()) {
    if (!item.isTensor() || !item.toTensor().defined()) {
      indices.push_back(std::nullopt);
    } else if (!is_mask(item.toTensor())) {
      indices.push_back(item.toTensor());
    } else {
      const at::Tensor mask = item.toTensor();
      const auto at_dim = static_cast<int64_t>(indices.size());
      for (int64_t d = 0; d < mask.dim(); ++d) {
        TORCH_CHECK_INDEX(at_dim + d < self.dim() && mask.size(d) == self.size(at_dim + d), "The shape of the mask ",
                          mask.sizes(), " at index ", d, " does not match the shape of the indexed tensor ",
                          self.sizes(), " at index ", at_dim + d);
      }
      append_positions(indices, mask);
    }
  }
  Stack replaced{self, indices};
  record_any_op(info, &replaced);
  finish(info, stack, replaced.at(0));
  return true;
}

bool masked_select(const OpInfo& info, Stack* stack) {
  const IValues args = arguments(info, *stack);
  const at::Tensor self = args[0].toTensor(), mask = args[1].toTensor();
  TORCH_CHECK(mask.scalar_type() == at::kBool, "masked_select: expected BoolTensor for mask");
  const auto sizes = at::infer_size(self.sizes(), mask.sizes());
  c10::List<std::optional<at::Tensor>> indices;
  const bool scalar = sizes.empty();
  append_positions(indices, scalar ? mask.reshape({1}) : mask.expand(sizes));
  const at::Tensor source = scalar ? self.reshape({1}) : self.expand(sizes);
  Stack replaced{source, indices};
  record_any_op(find_op("aten::index", "Tensor"), &replaced);
  finish(info, stack, replaced.at(0));
  return true;
}

// The CPU has no histc of integers, but other devices do, and programs use it.
bool histc(const OpInfo& info, Stack* stack) {
  const IValues args = arguments(info, *stack);
  const at::Tensor self = args[0].toTensor();
  if (c10::isFloatingType(self.scalar_type())) return false;
  Stack replaced(args.begin(), args.end());
  replaced[0] = self.to(at::kDouble);
  record_any_op(info, &replaced);
  finish(info, stack, replaced.at(0).toTensor().to(self.scalar_type()));
  return true;
}

// This device has no nested tensors: False tells PyTorch to keep a padded batch as it is.
bool stay_padded(const OpInfo& info, Stack* stack) {
  finish(info, stack, false);
  return true;
}

// Whether two tensors show the same memory in the same layout. Nothing is computed.
bool is_set_to(const OpInfo& info, Stack* stack) {
  const IValues args = arguments(info, *stack);
  const LazyTensor *self = as_lazy(args[0].toTensor()), *other = as_lazy(args[1].toTensor());
  const bool same = self && other && &self->root() == &other->root() && self->sizes() == other->sizes() &&
                    self->strides() == other->strides() && self->storage_offset() == other->storage_offset();
  torch::jit::drop(*stack, info.kinds.size());
  stack->emplace_back(same);
  return true;
}

void add_data_dependent_handlers() {
  for (const char* name :
       {"aten.nonzero", "aten.nonzero_static", "aten._unique", "aten._unique2", "aten.unique_dim",
        "aten.unique_consecutive", "aten.unique_dim_consecutive", "aten.repeat_interleave.Tensor", "aten.bincount",
        "aten.equal", "aten._linalg_check_errors", "aten.segment_reduce", "aten._ctc_loss.Tensor",
        "aten._ctc_loss_backward.Tensor", "aten._assert_async", "aten._assert_async.msg", "aten.histogram",
        "aten._histogramdd_bin_edges", "aten.linalg_lstsq"}) {
    add_handler(name, host_only);
  }
  add_handler("aten.is_set_to", is_set_to);
  add_handler("aten.histc", histc);
  add_handler("aten._nested_tensor_from_mask_left_aligned", stay_padded);
  add_handler("aten.index.Tensor", index_with_mask);
  add_handler("aten.masked_select", masked_select);
}

const HandlersAtLoad data_dependent_handlers(add_data_dependent_handlers);

}  // namespace
}  // namespace spmdx::bridge
