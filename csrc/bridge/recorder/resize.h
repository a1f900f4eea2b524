// SPDX-License-Identifier: Apache-2.0
// Storages that grow and shrink while tensors view them.
#pragma once
#include <ATen/core/Tensor.h>
#include "base/types.h"
#include "bridge/tensor/root.h"

namespace spmdx::bridge {

// The root of a storage that PyTorch hands over. One that no tensor has shown so far is listed now, with zeros for a
// value. Null: the storage is not ours. Program threads. Takes the recorder's lock.
Root* adopted(const c10::Storage& storage);
// `self` shows elements of these sizes from its offset on, in its storage, which grows where it has to. Holds the
// recorder's lock.
void resize(const at::Tensor& self, const Shape& sizes, const Shape& strides);
// The storage has this many bytes; without any, the memory of its elements is given up. Program threads. Takes the
// recorder's lock.
void resize_storage(const c10::Storage& storage, size_t bytes);

}  // namespace spmdx::bridge
