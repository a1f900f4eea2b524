// SPDX-License-Identifier: Apache-2.0
// The handler of resize_ and resize_as_.
#include <ATen/EmptyTensor.h>

#include "bridge/backend/strides.h"
#include "bridge/record/call/handlers.h"
#include "bridge/record/call/ivalue.h"
#include "bridge/record/call/op_info.h"
#include "bridge/record/operands.h"
#include "bridge/recorder/resize.h"

namespace spmdx::bridge {
namespace {

Shape strides_of(const Shape& sizes, at::MemoryFormat format) {
  return at::detail::empty_meta(sizes, at::TensorOptions().memory_format(format)).strides().vec();
}

bool resize_(const OpInfo& info, Stack* stack) {
  const IValues args = arguments(info, *stack);
  const at::Tensor self = args[0].toTensor();
  const bool as = info.base == "aten.resize_as_";
  const Shape sizes = as ? args[1].toTensor().sizes().vec() : int_list(args[1]);
  auto format = named(info, args, "memory_format").toOptional<c10::MemoryFormat>();
  if (as && format == at::MemoryFormat::Preserve) format = args[1].toTensor().suggest_memory_format();
  TORCH_CHECK(format != at::MemoryFormat::Preserve, "Unsupported memory format", *format);
  if (self.sizes() != c10::IntArrayRef(sizes) || format)
    resize(self, sizes, format ? strides_of(sizes, *format) : contiguous_strides(sizes));
  finish(info, stack, self);
  return true;
}

void add_resize_handlers() {
  add_handler("aten.resize_", resize_);
  add_handler("aten.resize_as_", resize_);
}

const HandlersAtLoad resize_handlers(add_resize_handlers);

}  // namespace
}  // namespace spmdx::bridge
