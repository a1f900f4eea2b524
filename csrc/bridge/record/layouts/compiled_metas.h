// SPDX-License-Identifier: Apache-2.0
// The meta kernels of ordinary ops that PyTorch has in C++. Its dispatcher reaches them no more: `import torch` puts
// kernels in Python before them, the first of which to run imports hundreds of modules.
#pragma once
#include <ATen/core/boxing/KernelFunction.h>

#include <string_view>

#include "bridge/record/call/op_info.h"

namespace spmdx::bridge {

// Null for an op that has none here, or none for these arguments: then the dispatcher's is called.
const c10::KernelFunction* compiled_meta(std::string_view op, const Stack& stack);

}  // namespace spmdx::bridge
