// SPDX-License-Identifier: Apache-2.0
// Runs an op on the CPU: copies operands there, and results and writes back.
#include "bridge/record/host_run.h"

#include <algorithm>

#include "bridge/backend/shard_device.h"
#include "bridge/record/call/ivalue.h"
#include "bridge/record/operands.h"
#include "bridge/recorder/recorder.h"
#include "bridge/step/read_back.h"
#include "bridge/tensor/tensor.h"

namespace spmdx::bridge {
namespace {

c10::IValue host_argument(const c10::IValue& value, bool written) {
  if (value.isTensor()) return value.toTensor().defined() ? on_host(value.toTensor(), written) : at::Tensor();
  if (value.isDevice()) return c10::Device(c10::kCPU);
  if (value.isTensorList()) {
    c10::List<at::Tensor> tensors;
    for (const auto& item : value.toTensorVector()) tensors.push_back(on_host(item, written));
    return tensors;
  }
  if (value.isList() && !value.toListRef().empty() && (value.isOptionalTensorList())) {
    c10::List<std::optional<at::Tensor>> tensors;
    for (const auto& item : value.toListRef()) {
      tensors.push_back(item.isTensor() ? std::optional(on_host(item.toTensor(), written)) : std::nullopt);
    }
    return tensors;
  }
  return value.isGenerator() ? c10::IValue() : value;
}

at::Tensor to_device(const at::Tensor& host) {
  return host.defined() && host.is_cpu() ? Recorder::instance().upload(host) : host;
}

c10::IValue device_result(const c10::IValue& value) {
  if (value.isTensor()) return to_device(value.toTensor());
  if (!value.isTensorList()) return value;
  c10::List<at::Tensor> tensors;
  for (const auto& item : value.toTensorVector()) tensors.push_back(to_device(item));
  return tensors;
}

void write_from(const c10::IValue& target, const c10::IValue& host) {
  auto put = [](const at::Tensor& tensor, const at::Tensor& value) {
    if (as_lazy(tensor)) assign(tensor, operand(Recorder::instance().upload(value)), true);
  };
  if (target.isTensor()) return put(target.toTensor(), host.toTensor());
  if (!target.isTensorList()) return;
  const auto targets = target.toTensorVector(), values = host.toTensorVector();
  for (size_t i = 0; i < targets.size(); ++i) put(targets[i], values[i]);
}

}  // namespace

at::Tensor on_host(const at::Tensor& tensor, bool written) {
  if (!as_lazy(tensor)) return tensor;
  return written ? materialise(tensor) : peek(tensor);
}

void run_on_host(const OpInfo& info, Stack* stack) {
  const IValues args = arguments(info, *stack);
  Stack host;
  for (size_t i = 0; i < args.size(); ++i) {
    const bool written = std::find(info.written.begin(), info.written.end(), static_cast<int>(i)) != info.written.end();
    host.push_back(host_argument(args[i], written));
  }
  Stack kept = host;
  {
    KernelGuard kernels_only;
    led(info, [&] { info.op.callBoxed(&host); });
  }
  Stack results;
  for (size_t r = 0; r < host.size(); ++r) {
    const int written = info.returned.at(r);
    results.push_back(written >= 0 ? args[written] : device_result(host[r]));
  }
  for (int written : info.written) {
    if (!kept[written].isNone()) write_from(args[written], kept[written]);
  }
  torch::jit::drop(*stack, info.kinds.size());
  for (auto& result : results) stack->push_back(std::move(result));
}

}  // namespace spmdx::bridge
