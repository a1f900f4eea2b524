// SPDX-License-Identifier: Apache-2.0
// Shape inference: runs the op on meta tensors, or on zeros where that is not possible.
#include "bridge/record/layouts/shapes.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/WrapDimMinimal.h>

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "bridge/backend/aten_facts.h"
#include "bridge/backend/shard_device.h"
#include "bridge/python/errors.h"
#include "bridge/record/layouts/compiled_metas.h"
#include "bridge/record/layouts/correct_layouts.h"
#include "bridge/record/layouts/correct_types.h"

namespace spmdx::bridge {
namespace {

at::Tensor zeros_like(const Meta& meta) {
  auto options = at::TensorOptions().dtype(meta.dtype).device(c10::kCPU);
  at::Tensor zeros = at::empty_strided(meta.sizes, meta.strides, options).zero_();
  set_bits(zeros, meta);
  return zeros;
}

// A stand-in on `device` for an operand. Numbers on the CPU stay as they are, since kernels read them.
at::Tensor stand_in(const at::Tensor& tensor, c10::DeviceType device) {
  if (!tensor.defined() || tensor.unsafeGetTensorImpl()->is_wrapped_number()) return tensor;
  return device == c10::kMeta ? meta_tensor(meta_of(tensor)) : zeros_like(meta_of(tensor));
}

c10::IValue stand_in_list(const c10::IValue& value, c10::DeviceType device, bool optional) {
  c10::List<at::Tensor> tensors;
  c10::List<std::optional<at::Tensor>> maybe;
  for (const auto& item : value.toListRef()) {
    if (optional && item.isNone()) {
      maybe.push_back(std::nullopt);
      continue;
    }
    const auto stand = stand_in(item.toTensor(), device);
    if (optional)
      maybe.push_back(stand.defined() ? std::optional(stand) : std::nullopt);
    else
      tensors.push_back(stand);
  }
  return optional ? c10::IValue(std::move(maybe)) : c10::IValue(std::move(tensors));
}

Stack stand_ins(const OpInfo& info, IValues args, c10::DeviceType device) {
  Stack stack;
  for (size_t i = 0; i < args.size(); ++i) {
    const auto& argument = info.op.schema().arguments()[i];
    if (args[i].isNone() || info.kinds[i] == ArgumentKind::generator) {
      stack.emplace_back();
    } else if (info.kinds[i] == ArgumentKind::tensor) {
      stack.emplace_back(stand_in(args[i].toTensor(), device));
    } else if (info.kinds[i] == ArgumentKind::tensor_list || info.kinds[i] == ArgumentKind::optional_tensor_list) {
      stack.push_back(stand_in_list(args[i], device, info.kinds[i] == ArgumentKind::optional_tensor_list));
    } else {
      stack.push_back(args[i]);
    }
    if (argument.name() == "device") stack.back() = c10::Device(device);
    if (argument.name() == "pin_memory") stack.back() = c10::IValue();
  }
  return stack;
}

Results metas(const Stack& results) {
  Results all;
  auto layout = [](const at::Tensor& tensor) {
    Meta meta;
    meta.defined = tensor.defined();
    return meta.defined ? meta_of(tensor) : meta;
  };
  for (const auto& result : results) {
    auto& group = all.emplace_back();
    if (result.isNone()) {
      group.push_back(layout(at::Tensor()));
    } else if (result.isTensor()) {
      group.push_back(layout(result.toTensor()));
    } else {
      for (const auto& item : result.toListRef()) {
        group.push_back(layout(item.isNone() ? at::Tensor() : item.toTensor()));
      }
    }
  }
  return all;
}

// Kernels leave out the gradients that `output_mask` does not ask for; some meta kernels make them all the same.
void leave_out_unwanted(const OpInfo& info, IValues args, Results& results) {
  for (size_t i = 0; i < args.size(); ++i) {
    if (info.op.schema().arguments()[i].name() != "output_mask" || !args[i].isBoolList()) continue;
    Meta nothing;
    nothing.defined = false;
    const c10::List<bool> wanted = args[i].toBoolList();
    for (size_t r = 0; r < results.size() && r < wanted.size(); ++r)
      if (!wanted.get(r)) results[r] = {nothing};
  }
}

// Throws what the CPU's kernel throws where the operand has no such dim.
void check_dim(const OpInfo& info, IValues args) {
  const auto dim = info.op.schema().argumentIndexWithName("dim");
  internal_check(dim.has_value(), info.name + " has no argument dim to check");
  if (args[*dim].isInt()) c10::maybe_wrap_dim(args[*dim].toInt(), args[0].toTensor().dim());
}

void call(const OpInfo& info, Stack& stack, c10::DeviceType device) {
  const c10::KernelFunction* compiled = device == c10::kMeta ? compiled_meta(info.name, stack) : nullptr;
  if (!compiled) return info.op.callBoxed(&stack);
  compiled->callBoxed(info.op, c10::DispatchKeySet(c10::DispatchKey::Meta), &stack);
}

// Whether it is a product for which PyTorch's meta kernel takes bfloat16 alone, while those of devices take float32,
// and lay rows of whole 16 bytes alike.
bool is_stricter_product(const OpInfo& info, const Stack& stack) {
  if (info.name != "aten._grouped_mm") return false;
  const at::Tensor a = stack[0].toTensor(), b = stack[1].toTensor();
  return a.scalar_type() == at::kFloat && b.scalar_type() == at::kFloat && b.dim() > 0 && b.size(-1) % 8 == 0;
}

void call_in_bfloat16(const OpInfo& info, Stack& stack) {
  for (size_t i = 0; i < 2; ++i) stack[i] = stack[i].toTensor().to(at::kBFloat16);
  call(info, stack, c10::kMeta);
  stack.at(0) = stack[0].toTensor().to(at::kFloat);
}

Results run(const OpInfo& info, IValues args, c10::DeviceType device) {
  KernelGuard kernels_only;
  Stack stack = stand_ins(info, args, device);
  if (device == c10::kMeta && is_stricter_product(info, stack))
    call_in_bfloat16(info, stack);
  else
    call(info, stack, device);
  Results results = metas(stack);
  leave_out_unwanted(info, args, results);
  if (device == c10::kMeta) {
    correct_types(info, args, results);
    correct_layouts(info, args, results);
  }
  return results;
}

}  // namespace

std::vector<std::vector<Meta>> infer(const OpInfo& info, IValues args) {
  if (info.facts->any_dim) check_dim(info, args);
  if (info.facts->meta_differs) {
    return run(info, args, c10::kCPU);
  }
  try {
    return run(info, args, c10::kMeta);
  } catch (const std::exception&) {
    let_interrupts_pass();
    // There is no meta kernel, it is stricter than the CPU's kernel, or the call is wrong. The CPU's kernel decides,
    // and its message is the one that users of eager see.
    return run(info, args, c10::kCPU);
  }
}

uint64_t settings_of_inference() {
  return static_cast<uint64_t>(c10::get_default_dtype_as_scalartype()) |
         static_cast<uint64_t>(at::globalContext().userEnabledMkldnn()) << 8 |
         static_cast<uint64_t>(at::get_num_threads()) << 16;
}

}  // namespace spmdx::bridge
