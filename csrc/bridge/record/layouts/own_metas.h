// SPDX-License-Identifier: Apache-2.0
// Meta kernels of ordinary ops for which PyTorch has them in Python alone, so that a new shape costs little.
#pragma once
#include <ATen/core/boxing/KernelFunction.h>

#include <string_view>
#include <type_traits>

#include "bridge/record/call/op_info.h"

namespace spmdx::bridge {

template <auto* kKernel>
c10::KernelFunction boxed() {
  return c10::KernelFunction::makeFromUnboxedFunction(
      c10::CompileTimeFunctionPointer<std::remove_pointer_t<decltype(kKernel)>, kKernel>());
}

// Null for an op that has none here, or none for these arguments.
const c10::KernelFunction* own_meta(std::string_view op, const Stack& stack);

}  // namespace spmdx::bridge
