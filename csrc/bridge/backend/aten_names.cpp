// SPDX-License-Identifier: Apache-2.0
// Conversions between PyTorch's names of ops and dtypes and ours.
#include "bridge/backend/aten_names.h"

#include <array>

#include "base/error.h"

namespace spmdx::bridge {
namespace {

// In the order of the enumerators of DType, without `unknown`.
constexpr std::array kScalarTypes = {
    c10::ScalarType::Float,         c10::ScalarType::Double,        c10::ScalarType::Half,
    c10::ScalarType::BFloat16,      c10::ScalarType::Char,          c10::ScalarType::Short,
    c10::ScalarType::Int,           c10::ScalarType::Long,          c10::ScalarType::Byte,
    c10::ScalarType::UInt16,        c10::ScalarType::UInt32,        c10::ScalarType::UInt64,
    c10::ScalarType::Bool,          c10::ScalarType::ComplexHalf,   c10::ScalarType::ComplexFloat,
    c10::ScalarType::ComplexDouble, c10::ScalarType::Float8_e4m3fn, c10::ScalarType::Float8_e5m2};
static_assert(kScalarTypes.size() == static_cast<size_t>(DType::unknown));

}  // namespace

std::string op_name(const c10::OperatorName& name) {
  std::string text = name.name;
  if (const size_t colons = text.find("::"); colons != std::string::npos) text.replace(colons, 2, ".");
  return name.overload_name.empty() ? text : text + "." + name.overload_name;
}

c10::OperatorName operator_name(std::string_view op) {
  const size_t first = op.find('.');
  internal_check(first != op.npos, "an op without a namespace: " + std::string(op));
  const size_t second = op.find('.', first + 1);
  const std::string base(op.substr(first + 1, second == op.npos ? op.npos : second - first - 1));
  return {std::string(op.substr(0, first)) + "::" + base,
          second == op.npos ? std::string() : std::string(op.substr(second + 1))};
}

DType to_dtype(c10::ScalarType type) {
  for (size_t i = 0; i < kScalarTypes.size(); ++i)
    if (kScalarTypes[i] == type) return static_cast<DType>(i);
  throw ShardingError("spmdx cannot hold tensors of dtype " + std::string(c10::toString(type)) +
                      ". Expected a floating, complex, integer or bool dtype. Convert the tensor first.");
}

c10::ScalarType to_scalar_type(DType dtype) {
  internal_check(dtype != DType::unknown, "an absent value has no dtype");
  return kScalarTypes[static_cast<size_t>(dtype)];
}

}  // namespace spmdx::bridge
