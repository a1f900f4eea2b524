// SPDX-License-Identifier: Apache-2.0
// Reads a Number from an argument of any kind that is a number.
#include "bridge/backend/number.h"

#include "base/error.h"

namespace spmdx::bridge {

Number number(const Call& call, size_t index) {
  internal_check(index < call.args.size(), call.op + " lacks an argument");
  const Arg& arg = call.args[index];
  if (const auto* value = std::get_if<int64_t>(&arg)) return {{.integer = *value}, -1, true};
  if (const auto* value = std::get_if<double>(&arg)) return {{.real = *value}, -1, false};
  if (const auto* value = std::get_if<bool>(&arg)) return {{.integer = *value}, -1, true};
  if (const auto* param = std::get_if<RealParam>(&arg)) return {{}, param->index, false};
  if (const auto* param = std::get_if<IntParam>(&arg)) return {{}, param->index, true, param->plus};
  throw InternalError(call.op + " has an argument that is not a number");
}

Number number_or(const Call& call, size_t index, int64_t missing) {
  const bool absent = index >= call.args.size() || std::holds_alternative<std::monostate>(call.args[index]);
  return absent ? Number{{.integer = missing}, -1, true} : number(call, index);
}

}  // namespace spmdx::bridge
