// SPDX-License-Identifier: Apache-2.0
// Kernels of copies between the memory of a device and that of its host. On the CPU both are the same memory.
#include <ATen/core/Tensor.h>

#include "bridge/backend/buffer.h"
#include "bridge/backend/own_kernels.h"
#include "bridge/backend/shard_device.h"
#include "graph/places.h"

namespace spmdx::bridge {
namespace {

Compute copy_to(bool host) {
  return [host](std::span<const BufferRef> inputs, std::span<const Param>) -> std::vector<at::Tensor> {
    const at::Tensor& from = tensor_of(inputs[0]);
    const c10::Device to = host ? c10::Device(c10::kCPU) : shard_device();
    return {from.to(from.options().device(to), /*non_blocking=*/false, /*copy=*/true)};
  };
}

Compute prepare_to_device(const Call&) { return copy_to(false); }
Compute prepare_to_host(const Call&) { return copy_to(true); }

const OwnKernels host_kernels = {{kToDevice, prepare_to_device}, {kToHost, prepare_to_host}};

}  // namespace
}  // namespace spmdx::bridge
