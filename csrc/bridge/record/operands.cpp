// SPDX-License-Identifier: Apache-2.0
// Reads the values of operands, and makes tensors of results.
#include "bridge/record/operands.h"

#include "bridge/backend/aten_names.h"
#include "bridge/backend/strides.h"
#include "bridge/record/call/schema.h"
#include "bridge/recorder/recorder.h"
#include "bridge/recorder/resize.h"
#include "bridge/recorder/values.h"
#include "bridge/tensor/tensor.h"

namespace spmdx::bridge {

void refuse_device(const at::Tensor& tensor) {
  throw std::runtime_error(
      "Expected all tensors to be on the same device, but found at least two devices, spmdx:0 and " +
      tensor.device().str() + "! Move the tensor with .to('spmdx').");
}

ValueId operand(const at::Tensor& tensor) {
  if (LazyTensor* lazy = as_lazy(tensor)) return Recorder::instance().read(*lazy);
  if (!tensor.is_cpu() || tensor.dim() != 0) refuse_device(tensor);
  return Recorder::instance().host_scalar(tensor);
}

void assign(const at::Tensor& tensor, ValueId value, bool resize) {
  LazyTensor* lazy = as_lazy(tensor);
  if (!lazy) refuse_device(tensor);
  auto& recorder = Recorder::instance();
  const TensorType type = recorder.type(value);
  value = cast(value, to_dtype(tensor.scalar_type()));
  if (tensor.sizes() != c10::IntArrayRef(type.shape)) {
    TORCH_CHECK(resize, "output with shape ", tensor.sizes(), " doesn't match the broadcast shape ",
                c10::IntArrayRef(type.shape));
    bridge::resize(tensor, type.shape, contiguous_strides(type.shape));
  }
  recorder.write(*lazy, value);
}

at::Tensor wrap_value(ValueId value, MetaRef meta) {
  return make_tensor(Recorder::instance().held(value), std::move(meta));
}

at::Tensor wrap_value(ValueId value) {
  const TensorType& type = Recorder::instance().type(value);
  return wrap_value(value, share({to_scalar_type(type.dtype), type.shape, contiguous_strides(type.shape), 0, true}));
}

c10::IValue named(const OpInfo& info, IValues args, const char* name) {
  auto position = info.op.schema().argumentIndexWithName(name);
  return position ? args[*position] : c10::IValue();
}

IValues arguments(const OpInfo& info, const Stack& stack) { return torch::jit::last(stack, info.kinds.size()); }

void finish(const OpInfo& info, Stack* stack, c10::IValue result) {
  torch::jit::drop(*stack, info.kinds.size());
  stack->push_back(std::move(result));
}

bool finish_all(const OpInfo& info, Stack* stack, Stack results) {
  torch::jit::drop(*stack, info.kinds.size());
  for (auto& result : results) stack->push_back(std::move(result));
  return true;
}

const OpInfo& find_op(const char* name, const char* overload) {
  return op_info(c10::Dispatcher::singleton().findSchemaOrThrow(name, overload));
}

}  // namespace spmdx::bridge
