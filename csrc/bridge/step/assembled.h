// SPDX-License-Identifier: Apache-2.0
// Values of several devices, put together on the host.
#pragma once
#include <ATen/core/Tensor.h>

#include "runtime/data/data.h"

namespace spmdx::bridge {

// The whole of `data` on the host, of which `shards` are the shards; may share memory with them. Any thread, with or
// without locks: the caller has waited for the data and holds it.
at::Tensor assembled(const Data& data, const Shards& shards);

}  // namespace spmdx::bridge
