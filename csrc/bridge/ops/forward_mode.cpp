// SPDX-License-Identifier: Apache-2.0
// Ops with which forward-mode derivatives ask about memory: PyTorch's own functions serve lazy tensors, too.
#include <ATen/ops/_has_same_storage_numel_native.h>
#include <ATen/ops/_new_zeros_with_same_feature_meta_native.h>

#include "bridge/record/call/handlers.h"
#include "bridge/record/call/ivalue.h"
#include "bridge/record/call/op_info.h"
#include "bridge/record/operands.h"

namespace spmdx::bridge {
namespace {

// A tangent gets the layout of its primal, so that views of either match.
bool zeros_laid_out_alike(const OpInfo& info, Stack* stack) {
  const IValues args = arguments(info, *stack);
  finish(info, stack,
         at::native::_new_zeros_with_same_feature_meta(args[0].toTensor(), args[1].toTensor(), int_value(args[2])));
  return true;
}

bool same_room(const OpInfo& info, Stack* stack) {
  const IValues args = arguments(info, *stack);
  finish(info, stack, at::native::_has_same_storage_numel(args[0].toTensor(), args[1].toTensor()));
  return true;
}

void add_forward_mode_handlers() {
  add_handler("aten._new_zeros_with_same_feature_meta", zeros_laid_out_alike);
  add_handler("aten._has_same_storage_numel", same_room);
}

const HandlersAtLoad forward_mode_handlers(add_forward_mode_handlers);

}  // namespace
}  // namespace spmdx::bridge
