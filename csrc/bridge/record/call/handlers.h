// SPDX-License-Identifier: Apache-2.0
// Handlers: ops that are recorded in a way of their own. A file of handlers adds them when the library is loaded:
//   const HandlersAtLoad copy_handlers(add_copy_handlers);
#pragma once
#include <string>

#include "bridge/record/call/op_info.h"

namespace spmdx::bridge {

// "aten.mm" → its handler, by full name, then by base name; null if none.
Handler find_handler(const std::string& name);
void add_handler(const std::string& name, Handler handler);
struct HandlersAtLoad {
  explicit HandlersAtLoad(void (*add)()) { add(); }
};

}  // namespace spmdx::bridge
