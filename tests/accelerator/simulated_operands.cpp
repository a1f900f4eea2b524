// SPDX-License-Identifier: Apache-2.0
// Operands of a call, and their shadows: tensors that stand for them on meta or on the CPU, with the same aliases.
#include "simulated_operands.h"

#include <ATen/core/List.h>
#include <ATen/core/function_schema.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "simulated.h"

namespace simulated {

void for_each_tensor(const c10::IValue& value, const std::function<void(const at::Tensor&)>& visit) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) visit(value.toTensor());
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) for_each_tensor(element, visit);
  }
}

Tensors tensors_of(const c10::IValue& value) {
  Tensors tensors;
  for_each_tensor(value, [&](const at::Tensor& tensor) { tensors.push_back(tensor); });
  return tensors;
}

c10::IValue map_tensors(const c10::IValue& value, const TensorMap& map) {
  const auto mapped = [&](const at::Tensor& tensor) { return tensor.defined() ? map(tensor) : tensor; };
  if (value.isTensor()) return mapped(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(mapped(tensor));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor> tensor : value.toOptionalTensorList())
      list.push_back(tensor ? std::optional(mapped(*tensor)) : std::nullopt);
    return list;
  }
  return value;
}

c10::Device common_device(const c10::FunctionSchema& schema, const torch::jit::Stack& args) {
  std::optional<c10::Device> found;
  for (const c10::IValue& arg : args) {
    if (arg.isDevice() && arg.toDevice().is_cuda() && !found) found = arg.toDevice();
    for_each_tensor(arg, [&](const at::Tensor& tensor) {
      if (tensor.is_cuda() && !found) found = tensor.device();
    });
  }
  if (!found || found->index() < 0) found = c10::impl::getDeviceGuardImpl(kDevice)->getDevice();
  for (size_t i = 0; i < args.size(); ++i) {
    const c10::AliasInfo* alias = schema.arguments()[i].alias_info();
    const bool may_be_number = !alias || !alias->isWrite();
    for_each_tensor(args[i], [&](const at::Tensor& tensor) {
      const bool number = may_be_number && tensor.is_cpu() && tensor.dim() == 0;
      TORCH_CHECK(tensor.device() == *found || number,
                  "Expected all tensors to be on the same device, but found at least two devices, ", *found, " and ",
                  tensor.device(), "! (when checking argument ", schema.arguments()[i].name(), " of ",
                  schema.operator_name(), ")");
    });
  }
  return *found;
}

c10::IValue Shadows::of(const c10::IValue& argument) {
  if (argument.isDevice() && argument.toDevice().is_cuda()) return c10::Device(where_);
  return map_tensors(argument, [this](const at::Tensor& tensor) { return of(tensor); });
}

const c10::Storage* Shadows::real_storage(const at::Tensor& shadow) const {
  const auto found = reals_.find(shadow.storage().unsafeGetStorageImpl());
  return found == reals_.end() ? nullptr : &found->second;
}

at::Tensor Shadows::of(const at::Tensor& tensor) {
  at::Tensor& shadow = tensors_[tensor.unsafeGetTensorImpl()];
  if (shadow.defined()) return shadow;
  if (tensor.is_cuda()) {
    const auto key = where_ == c10::kMeta ? c10::DispatchKey::Meta : c10::DispatchKey::CPU;
    shadow = tensor_over(of(tensor.storage()), key, tensor);
  } else {
    shadow = tensor.clone();  // a number of the host, read now
    shadow.unsafeGetTensorImpl()->set_wrapped_number(tensor.unsafeGetTensorImpl()->is_wrapped_number());
  }
  return shadow;
}

const c10::Storage& Shadows::of(const c10::Storage& storage) {
  c10::Storage& shadow = storages_[storage.unsafeGetStorageImpl()];
  if (shadow) return shadow;
  void* address = where_ == c10::kMeta ? nullptr : host_address(storage.data());
  shadow = c10::Storage(c10::Storage::use_byte_size_t{}, storage.nbytes(), c10::DataPtr(address, where_),
                        where_ == c10::kMeta ? c10::GetAllocator(c10::kMeta) : nullptr, where_ == c10::kMeta);
  reals_[shadow.unsafeGetStorageImpl()] = storage;
  return shadow;
}

}  // namespace simulated
