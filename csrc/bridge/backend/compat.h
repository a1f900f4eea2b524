// SPDX-License-Identifier: Apache-2.0
// What differs between versions of PyTorch, in one place.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/version.h>

#if TORCH_VERSION_MAJOR < 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 11)
#error "spmdx needs PyTorch 2.11 or newer"
#endif

namespace spmdx::bridge {

// The dispatch keys that are switched off while an op runs on shards: autograd, autocast, Python modes.
inline c10::DispatchKeySet keys_above_kernels() {
  return c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset | c10::python_ks |
         c10::DispatchKeySet(c10::DispatchKey::PythonDispatcher);
}

}  // namespace spmdx::bridge
