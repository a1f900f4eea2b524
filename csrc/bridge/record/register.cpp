// SPDX-License-Identifier: Apache-2.0
// Registers the boxed kernel for each op by itself: the dispatcher prefers composite kernels to a mere fallback.
#include "bridge/record/register.h"

#include <torch/library.h>

#include <array>
#include <string_view>

#include "bridge/backend/aten_facts.h"
#include "bridge/backend/aten_names.h"
#include "bridge/record/boxed_kernel.h"
#include "bridge/record/call/handlers.h"
#include "bridge/record/call/op_info.h"
#include "bridge/record/call/schema.h"
#include "bridge/recorder/recorder.h"
#include "rules/lookup.h"

namespace spmdx::bridge {
namespace {

// Ops that are not registered: composites of ops that are recorded, and ops of other layouts or libraries.
constexpr std::array<std::string_view, 9> kSkippedPrefixes = {"aten::_cudnn",  "aten::_foreach", "aten::_mkldnn",
                                                              "aten::_nested", "aten::cudnn_",   "aten::miopen_",
                                                              "aten::mkldnn_", "aten::new_",     "aten::quantize"};
constexpr std::array<std::string_view, 4> kSkippedParts = {"_like", "sparse", "nested", "_empty_"};

bool skipped(const c10::OperatorName& op) {
  const std::string& name = op.name;
  if (facts_of(base_name(op_name(op))).composed) return true;
  for (auto prefix : kSkippedPrefixes) {
    if (name.starts_with(prefix)) return true;
  }
  for (auto part : kSkippedParts) {
    if (name.find(part) != name.npos) return true;
  }
  return false;
}

// Whether the boxed kernel can record an op: it takes a tensor or a device, and returns tensors only.
bool is_traceable(const c10::FunctionSchema& schema) {
  bool reaches = false;
  for (const auto& argument : schema.arguments()) reaches |= mentions_tensor(argument) || argument.name() == "device";
  for (const auto& result : schema.returns()) {
    if (!mentions_tensor(result)) return false;
  }
  return reaches;
}

bool wanted(const c10::OperatorHandle& op) {
  if (op.operator_name().name.rfind("aten::", 0) != 0) return false;
  if (op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) ||
      op.hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1)) {
    return false;
  }
  const std::string name = op_name(op.operator_name());
  if (find_handler(name) || find_handler(std::string(base_name(name)))) return true;
  return !skipped(op.operator_name()) && is_traceable(op.schema());
}

// The name with the overload, as "aten::add.Tensor".
std::string full_name(const OpInfo& info) { return c10::toString(info.op.operator_name()); }

// Asks `composed`, but only about ops that would be recorded as plain nodes, and about their in-place variants.
bool is_composed(const c10::OperatorHandle& op, const Composes& composed) {
  const Recorder::Lock lock;
  const OpInfo& info = op_info(op);
  const bool in_place = info.functional && info.written == std::vector<int>{0} && !info.is_out;
  if (info.handler || info.view_like || info.viewed >= 0 || info.returns_values || info.draws) return false;
  if (!info.written.empty() && !in_place) return false;
  const OpInfo& functional = in_place ? *info.functional : info;
  return !has_rule(functional.name) && !functional.handler && composed(full_name(info), full_name(functional));
}

}  // namespace

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&record_boxed>());
}

// PyTorch has a composite kernel of this op for all devices, but `.to` and `.data =` need the answer of this device.
TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("_has_compatible_shallow_copy_type", torch::CppFunction::makeFromBoxedFunction<&record_boxed>());
}

void record_whole(const c10::OperatorHandle& op) {
  if (op.hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1)) return;
  static auto* handles = new std::vector<c10::RegistrationHandleRAII>;
  handles->push_back(c10::Dispatcher::singleton().registerImpl(
      op.operator_name(), c10::DispatchKey::PrivateUse1, c10::KernelFunction::makeFromBoxedFunction<&record_boxed>(),
      std::nullopt, nullptr, "spmdx"));
}

void register_all(const Composes& composed) {
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findSchema(name);
    if (op && wanted(*op) && !is_composed(*op, composed)) record_whole(*op);
  }
}

}  // namespace spmdx::bridge
