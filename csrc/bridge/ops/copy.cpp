// SPDX-License-Identifier: Apache-2.0
// Copies within the device and to and from the host; ops that change what a tensor views.
#include <ATen/ops/clone.h>
#include <ATen/ops/empty_like.h>

#include "bridge/backend/aten_names.h"
#include "bridge/backend/shard_device.h"
#include "bridge/backend/strides.h"
#include "bridge/record/boxed_kernel.h"
#include "bridge/record/call/handlers.h"
#include "bridge/record/call/ivalue.h"
#include "bridge/record/call/op_info.h"
#include "bridge/record/call/overlap.h"
#include "bridge/record/operands.h"
#include "bridge/recorder/recorder.h"
#include "bridge/recorder/resize.h"
#include "bridge/recorder/values.h"
#include "bridge/step/assembled.h"
#include "bridge/step/read_back.h"
#include "bridge/tensor/abstract.h"
#include "bridge/tensor/known.h"
#include "bridge/tensor/meta.h"
#include "bridge/tensor/tensor.h"

namespace spmdx::bridge {
namespace {

// `source` copied to the device; `source` itself if it is there.
at::Tensor on_device(const at::Tensor& source) {
  if (as_lazy(source)) return source;
  TORCH_CHECK(source.is_cpu() || source.device() == shard_device(), "cannot copy from ", source.device(),
              " to spmdx. Copy to the CPU first.");
  return Recorder::instance().upload(source);
}

void copy_into_lazy(const at::Tensor& target, const at::Tensor& source) {
  if (overwrite(target, source)) return;
  const at::Tensor here = on_device(source);
  if (planning_only() && !as_lazy(source) && target.requires_grad()) forget_known(*as_lazy(here)->root().current.data);
  ValueId value = cast(operand(here), to_dtype(target.scalar_type()));
  if (may_repeat(target.sizes(), target.strides()) && !Recorder::instance().is_uniform(value)) refuse_repeats();
  assign(target, expand(value, target.sizes().vec()), false);
}

void copy_into(const at::Tensor& target, const at::Tensor& source) {
  if (as_lazy(target)) return copy_into_lazy(target, source);
  at::Tensor whole = peek(source);
  KernelGuard kernels_only;
  target.copy_(whole);
}

bool copy_(const OpInfo& info, Stack* stack) {
  const IValues args = arguments(info, *stack);
  const at::Tensor self = args[0].toTensor();
  copy_into(self, args[1].toTensor());
  finish(info, stack, self);
  return true;
}

bool copy_from(const OpInfo& info, Stack* stack) {
  const IValues args = arguments(info, *stack);
  const at::Tensor target = args[1].toTensor();
  copy_into(target, args[0].toTensor());
  finish(info, stack, target);
  return true;
}

bool copy_from_and_resize(const OpInfo& info, Stack* stack) {
  const IValues args = arguments(info, *stack);
  const at::Tensor source = args[0].toTensor(), target = args[1].toTensor();
  if (target.sizes() != source.sizes()) target.resize_(source.sizes());
  copy_into(target, source);
  finish(info, stack, target);
  return true;
}

bool to_copy(const OpInfo& info, Stack* stack) {
  const IValues args = arguments(info, *stack);
  const at::Tensor self = args[0].toTensor();
  const auto dtype = named(info, args, "dtype").toOptional<c10::ScalarType>().value_or(self.scalar_type());
  const auto format = named(info, args, "memory_format").toOptional<c10::MemoryFormat>();
  const auto device = named(info, args, "device").toOptional<c10::Device>();
  if (device && device->is_cpu() && as_lazy(self)) {
    finish(info, stack, materialise(self, dtype, format.value_or(at::MemoryFormat::Preserve)));
    return true;
  }
  const Meta in = meta_of(self);
  if (device && device->type() != kDeviceType) {
    TORCH_CHECK(device->is_meta(), "cannot copy from spmdx to ", *device, ". Copy to the CPU first.");
    finish(info, stack, at::empty_like(meta_tensor(in), meta_tensor(in).options().dtype(dtype), format));
    return true;
  }
  const at::Tensor here = on_device(self);
  KernelGuard kernels_only;
  const bool kept = format.value_or(at::MemoryFormat::Preserve) == at::MemoryFormat::Preserve;
  Meta meta = meta_of(kept ? dense_like(meta_tensor(in)) : at::empty_like(meta_tensor(in), {}, format));
  meta.dtype = dtype;
  finish(info, stack, wrap_value(cast(operand(here), to_dtype(dtype)), share(std::move(meta))));
  return true;
}

bool local_scalar(const OpInfo& info, Stack* stack) {
  const at::Tensor whole = peek(arguments(info, *stack)[0].toTensor());
  finish(info, stack, whole.item());
  return true;
}

// ---- what a tensor views -----------------------------------------------------------------------------

Shape default_strides(const c10::IValue& strides, const Shape& sizes) {
  return strides.isNone() || (strides.isList() && strides.toListRef().empty()) ? contiguous_strides(sizes)
                                                                               : int_list(strides);
}

int64_t asked_offset(const OpInfo& info, IValues args) {
  const c10::IValue offset = named(info, args, "storage_offset");
  return offset.isNone() ? args[0].toTensor().storage_offset() : int_value(offset);
}

// A layout with the dtype and the bits of `self`, elsewhere in its storage.
Meta like(const at::Tensor& self, Shape sizes, Shape strides, int64_t offset) {
  return {self.scalar_type(), std::move(sizes), std::move(strides), offset, true, self.is_conj(), self.is_neg()};
}

at::Tensor as_strided_of(const OpInfo& info, IValues args) {
  const at::Tensor self = args[0].toTensor();
  return strided_view(*as_lazy(self), like(self, int_list(args[1]), int_list(args[2]), asked_offset(info, args)));
}

bool as_strided(const OpInfo& info, Stack* stack) {
  finish(info, stack, as_strided_of(info, arguments(info, *stack)));
  return true;
}

bool as_strided_copy(const OpInfo& info, Stack* stack) {
  finish(info, stack, at::clone(as_strided_of(info, arguments(info, *stack)), at::MemoryFormat::Contiguous));
  return true;
}

// The whole storage is copied, since the strides may reach elements that `self` does not show.
bool as_strided_scatter(const OpInfo& info, Stack* stack) {
  const IValues args = arguments(info, *stack);
  const at::Tensor self = args[0].toTensor();
  const LazyTensor& lazy = *as_lazy(self);
  const auto elements = static_cast<int64_t>(lazy.root().nbytes() / self.element_size());
  const at::Tensor storage = at::clone(strided_view(lazy, {self.scalar_type(), {elements}, {1}, 0, true}));
  const auto view = [&](const Shape& sizes, const Shape& strides, int64_t offset) {
    return strided_view(*as_lazy(storage), {self.scalar_type(), sizes, strides, offset, true});
  };
  view(int_list(args[2]), int_list(args[3]), asked_offset(info, args)).copy_(args[1].toTensor());
  finish(info, stack, view(self.sizes().vec(), self.strides().vec(), self.storage_offset()));
  return true;
}

bool as_strided_(const OpInfo& info, Stack* stack) {
  const IValues args = arguments(info, *stack);
  const at::Tensor self = args[0].toTensor();
  as_lazy(self)->become(*as_lazy(as_strided_of(info, args)));
  finish(info, stack, self);
  return true;
}

// t_, transpose_, squeeze_, unsqueeze_ …: the tensor becomes the view that the op without `_` returns.
bool become_view(const OpInfo& info, Stack* stack) {
  const IValues args = arguments(info, *stack);
  const at::Tensor self = args[0].toTensor();
  const std::string name = info.op.schema().name();
  const std::string plain = name.substr(0, name.size() - 1);
  const std::string overload = plain == "aten::transpose" ? "int" : info.op.schema().overload_name();
  const OpInfo& view = find_op(plain.c_str(), overload.c_str());
  Stack viewed(args.begin(), args.end());
  record_any_op(view, &viewed);
  as_lazy(self)->become(*as_lazy(viewed.at(0).toTensor()));
  finish(info, stack, self);
  return true;
}

bool detach_(const OpInfo& info, Stack* stack) {
  finish(info, stack, arguments(info, *stack)[0]);
  return true;
}

bool set_tensor_(const OpInfo& info, Stack* stack) {
  const IValues args = arguments(info, *stack);
  const at::Tensor self = args[0].toTensor();
  const at::Tensor other = args[1].toTensor();
  LazyTensor* source = as_lazy(other);
  TORCH_CHECK(source, "set_: the source is not on spmdx. Move it with .to('spmdx') first.");
  if (other.is_conj() == self.is_conj() && other.is_neg() == self.is_neg())
    as_lazy(self)->become(*source);
  else
    as_lazy(self)->become(*as_lazy(
        strided_view(*source, like(self, other.sizes().vec(), other.strides().vec(), other.storage_offset()))));
  finish(info, stack, self);
  return true;
}

bool set_storage_(const OpInfo& info, Stack* stack) {
  const IValues args = arguments(info, *stack);
  const at::Tensor self = args[0].toTensor();
  c10::Storage storage = args[1].toStorage();
  const Root* root = adopted(storage);
  TORCH_CHECK(root, "set_: the storage is not one of spmdx. Pass untyped_storage() of an spmdx tensor.");
  const c10::IValue size = named(info, args, "size"), offset = named(info, args, "storage_offset");
  TORCH_CHECK(offset.isNone() || int_value(offset) >= 0, "Tensor: invalid storage offset ", int_value(offset));
  const auto elements = static_cast<int64_t>(root->nbytes() / self.element_size());
  const Shape sizes = size.isNone() ? Shape{elements} : int_list(size);
  const at::Tensor whole = make_view_of_root(storage, {}, *root->base);
  as_lazy(self)->become(
      *as_lazy(strided_view(*as_lazy(whole), like(self, sizes, default_strides(named(info, args, "stride"), sizes),
                                                  offset.isNone() ? 0 : int_value(offset)))));
  finish(info, stack, self);
  return true;
}

bool set_nothing_(const OpInfo& info, Stack* stack) {
  const at::Tensor self = arguments(info, *stack)[0].toTensor();
  const at::Tensor fresh = wrap_value(full_int({0}, 0, to_dtype(self.scalar_type())));
  as_lazy(self)->become(*as_lazy(fresh));
  finish(info, stack, self);
  return true;
}

bool compatible_shallow_copy(const OpInfo& info, Stack* stack) {
  const IValues args = arguments(info, *stack);
  finish(info, stack, as_lazy(args[0].toTensor()) && as_lazy(args[1].toTensor()));
  return true;
}

bool record_stream(const OpInfo& info, Stack* stack) {
  torch::jit::drop(*stack, info.kinds.size());
  return true;
}

void add_copy_handlers() {
  add_handler("aten.copy_", copy_);
  add_handler("aten._copy_from", copy_from);
  add_handler("aten._copy_from_and_resize", copy_from_and_resize);
  add_handler("aten._to_copy", to_copy);
  add_handler("aten._local_scalar_dense", local_scalar);
  add_handler("aten.as_strided", as_strided);
  add_handler("aten.as_strided_", as_strided_);
  add_handler("aten.as_strided_copy", as_strided_copy);
  add_handler("aten.as_strided_scatter", as_strided_scatter);
  for (const char* name : {"aten.squeeze_", "aten.t_", "aten.transpose_", "aten.unsqueeze_"}) {
    add_handler(name, become_view);
  }
  add_handler("aten.detach_", detach_);
  add_handler("aten.set_", set_nothing_);
  add_handler("aten.set_.source_Tensor", set_tensor_);
  add_handler("aten.set_.source_Storage", set_storage_);
  add_handler("aten.set_.source_Storage_storage_offset", set_storage_);
  add_handler("aten._has_compatible_shallow_copy_type", compatible_shallow_copy);
  add_handler("aten.record_stream", record_stream);
}

const HandlersAtLoad copy_handlers(add_copy_handlers);

}  // namespace
}  // namespace spmdx::bridge
