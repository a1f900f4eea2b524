// SPDX-License-Identifier: Apache-2.0
// Layers that are not recorded as they are: batch norm, LSTM and GRU cells, the gradient of nll_loss, convolutions.
#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/TracerMode.h>
#include <ATen/core/Reduction.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/cat.h>
#include <torch/library.h>

#include "bridge/backend/aten_names.h"
#include "bridge/record/boxed_kernel.h"
#include "bridge/record/call/handlers.h"
#include "bridge/record/call/ivalue.h"
#include "bridge/record/call/op_info.h"
#include "bridge/record/operands.h"
#include "bridge/recorder/values.h"
#include "bridge/tensor/meta.h"

namespace spmdx::bridge {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

// The tensor of result `index` of a recorded op.
Tensor group(const Recorded& recorded, size_t index) {
  ValueId value = recorded.first;
  for (size_t i = 0; i < index; ++i) value += static_cast<ValueId>((*recorded.results)[i].size());
  const MetaRef& meta = (*recorded.results)[index].at(0);
  return meta ? wrap_value(value, meta) : Tensor();
}

// (x, weight, bias, running_mean, running_var, training, momentum, eps) -> (out, mean, invstd)
Stack record_batch_norm(IValues args) {
  const bool has_statistics = args[3].isTensor() && args[3].toTensor().defined();
  const bool training = args[5].toBool();
  Stack results;
  if (has_statistics) {
    const Recorded recorded = record_op(find_op("aten::_native_batch_norm_legit_functional"), args);
    for (size_t i = 0; i < 3; ++i) results.push_back(group(recorded, i));
    if (training) {
      assign(args[3].toTensor(), recorded.first + 3, false);
      assign(args[4].toTensor(), recorded.first + 4, false);
    }
  } else {
    Stack rest(args.begin(), args.end());
    rest.erase(rest.begin() + 3, rest.begin() + 5);
    const Recorded recorded = record_op(find_op("aten::_native_batch_norm_legit", "no_stats"), rest);
    for (size_t i = 0; i < 3; ++i) results.push_back(group(recorded, i));
  }
  return results;
}

bool batch_norm(const OpInfo& info, Stack* stack) {
  return finish_all(info, stack, record_batch_norm(arguments(info, *stack)));
}

// Has no argument `training`, since it always trains, and a fourth result, which only accelerators' kernels use.
bool batch_norm_with_update(const OpInfo& info, Stack* stack) {
  const IValues args = arguments(info, *stack);
  Stack all(args.begin(), args.end());
  all.insert(all.begin() + 5, true);
  Stack results = record_batch_norm(all);
  results.push_back(wrap_value(full_int({0}, 0, DType::u8)));
  return finish_all(info, stack, std::move(results));
}

// The arguments of native_batch_norm_backward, and then that fourth result.
bool batch_norm_backward(const OpInfo& info, Stack* stack) {
  const IValues args = arguments(info, *stack);
  Stack replaced(args.begin(), args.end() - 1);
  record_any_op(find_op("aten::native_batch_norm_backward"), &replaced);
  return finish_all(info, stack, std::move(replaced));
}

Tensor plus(const Tensor& gates, const OptionalTensor& bias) { return bias && bias->defined() ? gates + *bias : gates; }

// Cells are composed of ops that autograd sees, so that they need no backward of their own.
std::tuple<Tensor, Tensor, Tensor> lstm_cell(const Tensor& input, const Tensor& hidden, const Tensor& cell,
                                             const OptionalTensor& input_bias, const OptionalTensor& hidden_bias) {
  const Tensor gates = plus(input, input_bias) + plus(hidden, hidden_bias);
  const auto parts = gates.chunk(4, 1);
  const Tensor next = parts[1].sigmoid() * cell + parts[0].sigmoid() * parts[2].tanh();
  return {parts[3].sigmoid() * next.tanh(), next, gates};
}

std::tuple<Tensor, Tensor> gru_cell(const Tensor& input, const Tensor& hidden, const Tensor& state,
                                    const OptionalTensor& input_bias, const OptionalTensor& hidden_bias) {
  const auto in = plus(input, input_bias).chunk(3, 1), by = plus(hidden, hidden_bias).chunk(3, 1);
  const Tensor reset = (in[0] + by[0]).sigmoid(), update = (in[1] + by[1]).sigmoid();
  const Tensor fresh = (in[2] + reset * by[2]).tanh();
  return {fresh + update * (state - fresh), at::cat({reset, update, fresh}, 1)};
}

// The total weight is read only if the loss is a mean. Else a constant replaces it, so that no device has to sum it.
bool nll_loss_backward(const OpInfo& info, Stack* stack) {
  const IValues args = arguments(info, *stack);
  if (args[4].toInt() == at::Reduction::Mean) return false;
  Stack replaced(args.begin(), args.end());
  replaced[6] = wrap_value(full_int({}, 0, to_dtype(args[6].toTensor().scalar_type())));
  record_any_op(info, &replaced);
  finish(info, stack, replaced.at(0));
  return true;
}

// torch.jit.trace does not record aten::convolution, only aten::_convolution, which PyTorch's kernels call.
bool convolution(const OpInfo& info, Stack* stack) {
  if (!at::tracer::impl::is_dispatch_enabled()) return false;
  const IValues args = arguments(info, *stack);
  Stack recorded(args.begin(), args.end());
  const at::Context& context = at::globalContext();
  const bool deterministic = context.deterministicCuDNN() || context.deterministicAlgorithms();
  torch::jit::push(recorded, context.benchmarkCuDNN(), deterministic, context.userEnabledCuDNN(),
                   context.allowTF32CuDNN());
  find_op("aten::_convolution").op.callBoxed(recorded);
  finish(info, stack, recorded.at(0));
  return true;
}

bool traced_convolution(const OpInfo& info, Stack* stack) {
  const IValues args = arguments(info, *stack);
  Stack replaced(args.begin(), args.begin() + 9);
  record_any_op(find_op("aten::convolution"), &replaced);
  finish(info, stack, replaced.at(0));
  return true;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("_thnn_fused_lstm_cell", lstm_cell);
  library.impl("_thnn_fused_gru_cell", gru_cell);
}
TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, library) {
  library.impl("_thnn_fused_lstm_cell", lstm_cell);
  library.impl("_thnn_fused_gru_cell", gru_cell);
}

namespace {

void add_layer_handlers() {
  add_handler("aten._batch_norm_with_update", batch_norm_with_update);
  add_handler("aten._convolution", traced_convolution);
  add_handler("aten.batch_norm_backward", batch_norm_backward);
  add_handler("aten.convolution", convolution);
  add_handler("aten.native_batch_norm", batch_norm);
  for (const char* name : {"aten.nll_loss_backward", "aten.nll_loss2d_backward"}) add_handler(name, nll_loss_backward);
}

const HandlersAtLoad layer_handlers(add_layer_handlers);

}  // namespace
}  // namespace spmdx::bridge
