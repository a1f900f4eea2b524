// SPDX-License-Identifier: Apache-2.0
// Values of several devices, put together on the host.
#pragma once
#include <ATen/core/Tensor.h>

#include "runtime/data/data.h"

namespace spmdx::bridge {

// The whole of data on the host. REQUIRES: it has not failed.
at::Tensor assembled(const Data& data, const Shards& shards);

}  // namespace spmdx::bridge
