// SPDX-License-Identifier: Apache-2.0
// Handlers: functions that record some ops in their own way. A file adds its handlers when the library is loaded:
//   const HandlersAtLoad copy_handlers(add_copy_handlers);
#pragma once
#include <string>

#include "bridge/record/call/op_info.h"

namespace spmdx::bridge {

// The handler that was added under exactly this name, as "aten.mm" or "aten.add.Tensor"; null if there is none.
Handler find_handler(const std::string& name);
// A base name stands for all overloads (op_info). Throws InternalError if the name has a handler already.
void add_handler(const std::string& name, Handler handler);
// Calls `add` when it is constructed. REQUIRES: the object is static.
struct HandlersAtLoad {
  explicit HandlersAtLoad(void (*add)()) { add(); }
};

}  // namespace spmdx::bridge
