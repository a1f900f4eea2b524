// SPDX-License-Identifier: Apache-2.0
// Constants: empty, zeros, ones, full, fill_ and zero_ are all recorded as aten.full.
#include <ATen/EmptyTensor.h>

#include "bridge/backend/aten_names.h"
#include "bridge/backend/strides.h"
#include "bridge/record/call/handlers.h"
#include "bridge/record/call/ivalue.h"
#include "bridge/record/call/op_info.h"
#include "bridge/record/operands.h"
#include "bridge/recorder/values.h"
#include "bridge/tensor/abstract.h"
#include "bridge/tensor/calls.h"
#include "bridge/tensor/known.h"
#include "bridge/tensor/meta.h"

namespace spmdx::bridge {
namespace {

ValueId full(const Shape& sizes, const c10::IValue& value, c10::ScalarType dtype) {
  const DType type = to_dtype(dtype);
  if (value.isBool()) return full_bool(sizes, value.toBool(), type);
  if (value.isDouble()) return full_real(sizes, value.toDouble(), type);
  if (value.isInt() || value.isSymInt()) return full_int(sizes, int_value(value), type);
  uint32_t params = 0;
  const Arg number = to_arg(ArgumentKind::number, value, true, params), none = std::monostate{};
  return record_call(make_call("aten.full", {}, {sizes, number, type, none, none, none}, {type, sizes, false}), {});
}

c10::ScalarType dtype_for(const c10::IValue& value) {
  if (value.isBool()) return c10::kBool;
  if (value.isInt() || value.isSymInt()) return c10::kLong;
  if (value.isComplexDouble()) return c10::toComplexType(c10::get_default_dtype_as_scalartype());
  return c10::get_default_dtype_as_scalartype();
}

c10::ScalarType dtype_or(const c10::IValue& dtype, c10::ScalarType otherwise) {
  return dtype.isNone() ? otherwise : static_cast<c10::ScalarType>(int_value(dtype));
}

bool make_full(const OpInfo& info, Stack* stack, const c10::IValue& value, c10::ScalarType otherwise) {
  const IValues args = arguments(info, *stack);
  const c10::IValue size = named(info, args, "size");
  const Shape sizes = size.isNone() ? Shape{} : int_list(size);
  for (int64_t extent : sizes) TORCH_CHECK(extent >= 0, "Trying to create tensor with negative dimension ", extent);
  finish(info, stack, wrap_value(full(sizes, value, dtype_or(named(info, args, "dtype"), otherwise))));
  return true;
}

bool zeros(const OpInfo& info, Stack* stack) {
  return make_full(info, stack, int64_t{0}, c10::get_default_dtype_as_scalartype());
}
bool ones(const OpInfo& info, Stack* stack) {
  return make_full(info, stack, int64_t{1}, c10::get_default_dtype_as_scalartype());
}
bool full_of(const OpInfo& info, Stack* stack) {
  const c10::IValue value = named(info, arguments(info, *stack), "fill_value");
  return make_full(info, stack, value, dtype_for(value));
}
bool scalar_tensor(const OpInfo& info, Stack* stack) {
  const c10::IValue value = named(info, arguments(info, *stack), "s");
  return make_full(info, stack, value, c10::get_default_dtype_as_scalartype());
}

bool empty_with(const OpInfo& info, Stack* stack) {
  const IValues args = arguments(info, *stack);
  const Shape sizes = int_list(args[0]);
  for (int64_t extent : sizes) TORCH_CHECK(extent >= 0, "Trying to create tensor with negative dimension ", extent);
  const auto dtype = dtype_or(named(info, args, "dtype"), c10::get_default_dtype_as_scalartype());
  const c10::IValue format = named(info, args, "memory_format"), stride = named(info, args, "stride");
  Meta meta{dtype, sizes, contiguous_strides(sizes), 0, true};
  if (!stride.isNone()) meta.strides = int_list(stride);
  if (!format.isNone()) {
    auto options = at::TensorOptions().dtype(dtype).memory_format(static_cast<c10::MemoryFormat>(int_value(format)));
    meta = meta_of(at::detail::empty_meta(sizes, options));
  }
  const at::Tensor made = wrap_value(full_int(sizes, 0, to_dtype(dtype)), share(std::move(meta)));
  if (planning_only()) note_unknown(as_lazy(made)->root().current);
  finish(info, stack, made);
  return true;
}

bool zero_(const OpInfo& info, Stack* stack) {
  const at::Tensor self = arguments(info, *stack)[0].toTensor();
  assign(self, full_int(self.sizes().vec(), 0, to_dtype(self.scalar_type())), false);
  finish(info, stack, self);
  return true;
}

bool fill_scalar_(const OpInfo& info, Stack* stack) {
  const IValues args = arguments(info, *stack);
  const at::Tensor self = args[0].toTensor();
  assign(self, full(self.sizes().vec(), args[1], self.scalar_type()), false);
  finish(info, stack, self);
  return true;
}

bool fill_tensor_(const OpInfo& info, Stack* stack) {
  const IValues args = arguments(info, *stack);
  const at::Tensor self = args[0].toTensor(), value = args[1].toTensor();
  TORCH_CHECK(value.dim() == 0, "fill_ only supports 0-dimension value tensor but got tensor with ", value.dim(),
              " dimensions.");
  assign(self, expand(cast(operand(value), to_dtype(self.scalar_type())), self.sizes().vec()), false);
  finish(info, stack, self);
  return true;
}

void add_factory_handlers() {
  add_handler("aten.zeros", zeros);
  // On other devices these zeros have no memory, and in-place ops refuse them. Here they are ordinary zeros.
  add_handler("aten._efficientzerotensor", zeros);
  add_handler("aten.ones", ones);
  add_handler("aten.full", full_of);
  add_handler("aten.scalar_tensor", scalar_tensor);
  add_handler("aten.empty.memory_format", empty_with);
  add_handler("aten.empty_strided", empty_with);
  add_handler("aten.zero_", zero_);
  add_handler("aten.fill_.Scalar", fill_scalar_);
  add_handler("aten.fill_.Tensor", fill_tensor_);
}

const HandlersAtLoad factory_handlers(add_factory_handlers);

}  // namespace
}  // namespace spmdx::bridge
