// SPDX-License-Identifier: Apache-2.0
// Closeness: whether two results of an op differ by no more than rounding.
#pragma once
#include <ATen/core/Tensor.h>

#include <span>

#include "runtime/data/backend.h"

namespace spmdx::bridge {

// As Backend::is_close says.
bool is_close(const at::Tensor& found, const at::Tensor& expected, std::span<const BufferRef> made_of,
              std::span<const BufferRef> before);

}  // namespace spmdx::bridge
