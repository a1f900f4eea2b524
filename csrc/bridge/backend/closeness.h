// SPDX-License-Identifier: Apache-2.0
// Closeness: whether two results of an op differ by no more than rounding.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace spmdx::bridge {

// As Backend::perturbed says: a tensor that holds no floats is given back.
at::Tensor perturbed(const at::Tensor& tensor, uint64_t seed);
// As Backend::is_close says; `perturbed` may be undefined.
bool is_close(const at::Tensor& found, const at::Tensor& expected, const at::Tensor& perturbed);

}  // namespace spmdx::bridge
