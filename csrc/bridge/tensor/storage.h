// SPDX-License-Identifier: Apache-2.0
// How many bytes of its storage a tensor needs.
#pragma once
#include "bridge/tensor/meta.h"
#include "bridge/tensor/tensor.h"

namespace spmdx::bridge {

// Bytes from the beginning of the storage to the end of what this layout reaches.
size_t bytes_of(const Meta& meta);
// Throws where the storage is too short for what the tensor shows.
void require_storage(const LazyTensor& tensor);

}  // namespace spmdx::bridge
