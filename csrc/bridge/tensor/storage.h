// SPDX-License-Identifier: Apache-2.0
// How many bytes tensors need of the storage that they show.
#pragma once
#include "bridge/tensor/meta.h"
#include "bridge/tensor/tensor.h"

namespace spmdx::bridge {

size_t bytes_of(const Meta& meta);
// Throws where the storage is too short for what the tensor shows.
void require_storage(const LazyTensor& tensor);

}  // namespace spmdx::bridge
