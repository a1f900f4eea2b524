// SPDX-License-Identifier: Apache-2.0
// Arguments of a call: one function for each kind of argument, with a value for absent ones.
#include "graph/args.h"

#include "base/error.h"

namespace spmdx {

const Arg& argument(const Call& call, size_t index) {
  static const Arg none;
  return index < call.args.size() ? call.args[index] : none;
}

int operand(const Call& call, size_t arg) {
  const auto* tensor = std::get_if<TensorArg>(&argument(call, arg));
  return tensor ? static_cast<int>(tensor->input) : -1;
}

int64_t integer(const Call& call, size_t arg, int64_t missing) {
  const auto* value = std::get_if<int64_t>(&argument(call, arg));
  return value ? *value : missing;
}

double real(const Call& call, size_t arg, double missing) {
  const Arg& value = argument(call, arg);
  if (const auto* number = std::get_if<double>(&value)) return *number;
  if (const auto* whole = std::get_if<int64_t>(&value)) return static_cast<double>(*whole);
  if (const auto* truth = std::get_if<bool>(&value)) return *truth ? 1.0 : 0.0;
  return missing;
}

std::vector<int64_t> integers(const Call& call, size_t arg) {
  const Arg& value = argument(call, arg);
  if (const auto* list = std::get_if<std::vector<int64_t>>(&value)) return *list;
  if (const auto* one = std::get_if<int64_t>(&value)) return {*one};
  return {};
}

bool boolean(const Call& call, size_t arg, bool missing) {
  const auto* value = std::get_if<bool>(&argument(call, arg));
  return value ? *value : missing;
}

const std::vector<int64_t>& list_of_integers(const Call& call, size_t arg) {
  const auto* list = std::get_if<std::vector<int64_t>>(&argument(call, arg));
  if (!list) throw InternalError(call.op + " has no list of integers as its argument " + std::to_string(arg));
  return *list;
}

bool is_number(const Arg& arg, double number) {
  if (const auto* real = std::get_if<double>(&arg)) return *real == number;
  if (const auto* whole = std::get_if<int64_t>(&arg)) return static_cast<double>(*whole) == number;
  if (const auto* truth = std::get_if<bool>(&arg)) return (*truth ? 1.0 : 0.0) == number;
  return false;
}

bool is_zero(const Arg& arg) {
  return std::holds_alternative<std::monostate>(arg) || (!std::holds_alternative<bool>(arg) && is_number(arg, 0));
}

int64_t normal_dim(int64_t dim, size_t rank) {
  const auto n = static_cast<int64_t>(rank);
  if (dim < 0) dim += n;
  const bool is_there = (dim >= 0 && dim < n) || (n == 0 && (dim == 0 || dim == -1));
  if (!is_there) throw DimOutOfRange("a dim of a call is out of range");
  return dim;
}

std::vector<bool> acted_dims(const Call& call, size_t arg, size_t rank) {
  const std::vector<int64_t> list = integers(call, arg);
  std::vector<bool> acted(rank, list.empty());
  if (rank == 0) return acted;
  for (int64_t dim : list) acted[static_cast<size_t>(normal_dim(dim, rank))] = true;
  return acted;
}

}  // namespace spmdx
