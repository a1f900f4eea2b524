// SPDX-License-Identifier: Apache-2.0
// What a kernel of somebody else's has to keep to, which its first run is asked for: it only reads its inputs, and its
// results are its no longer.
#pragma once
#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace spmdx::bridge {

// As a kernel was given it, and as it was before.
struct Given {
  at::Tensor now, before;
};

// Throws std::runtime_error if `given`, the kernel's `index`-th input, has other bits now.
void require_only_read(const Given& given, size_t index);
// Throws std::runtime_error if a result of one run lies in memory of another's, where the next run will write again.
void require_fresh(const std::vector<at::Tensor>& first, const std::vector<at::Tensor>& second);
// Throws std::runtime_error if a result lies in memory of an input or of another result, and does not say so by its
// storage, as what NumPy made of them: what is written over one would change the other.
void require_own_memory(const std::vector<at::Tensor>& results, const std::vector<at::Tensor>& inputs);
// A tensor's dtype and shape, and its layout if that is not dense.
std::string told(const at::Tensor& tensor);

}  // namespace spmdx::bridge
