// SPDX-License-Identifier: Apache-2.0
// Operands of a call, and their shadows: tensors that stand for them on meta or on the CPU, with the same aliases.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <functional>
#include <unordered_map>
#include <vector>

namespace c10 {
struct FunctionSchema;
}

namespace simulated {

using Tensors = std::vector<at::Tensor>;
using TensorMap = std::function<at::Tensor(const at::Tensor&)>;

// The defined tensors in a value, which may be a tensor, a list of tensors or something else.
void for_each_tensor(const c10::IValue& value, const std::function<void(const at::Tensor&)>& visit);
Tensors tensors_of(const c10::IValue& value);
// The same value with other tensors.
c10::IValue map_tensors(const c10::IValue& value, const TensorMap& map);

// The simulated device of a call. Throws if operands are elsewhere, but for numbers of the host.
c10::Device common_device(const c10::FunctionSchema& schema, const torch::jit::Stack& arguments);

class Shadows {
 public:
  explicit Shadows(c10::DeviceType where) : where_(where) {}  // kMeta: no bytes; kCPU: the device's own bytes
  c10::IValue of(const c10::IValue& argument);
  // The storage on the device whose shadow this tensor is a view of, if it is one.
  const c10::Storage* real_storage(const at::Tensor& shadow) const;

 private:
  at::Tensor of(const at::Tensor& tensor);
  const c10::Storage& of(const c10::Storage& storage);

  c10::DeviceType where_;
  std::unordered_map<const c10::TensorImpl*, at::Tensor> tensors_;
  std::unordered_map<const c10::StorageImpl*, c10::Storage> storages_, reals_;
};

}  // namespace simulated
