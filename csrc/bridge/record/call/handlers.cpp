// SPDX-License-Identifier: Apache-2.0
// The table of handlers.
#include "bridge/record/call/handlers.h"

#include <unordered_map>

#include "base/error.h"

namespace spmdx::bridge {
namespace {

std::unordered_map<std::string, Handler>& handlers() {
  static auto* table = new std::unordered_map<std::string, Handler>;
  return *table;
}

}  // namespace

Handler find_handler(const std::string& name) {
  auto found = handlers().find(name);
  return found == handlers().end() ? nullptr : found->second;
}

void add_handler(const std::string& name, Handler handler) {
  internal_check(handlers().emplace(name, handler).second, "two handlers of " + name);
}

}  // namespace spmdx::bridge
