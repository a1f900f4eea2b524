// SPDX-License-Identifier: Apache-2.0
// IValue → Arg, and IValue → words of a key, by the kind of the argument.
#include "bridge/record/call/ivalue.h"

#include <bit>

#include "base/error.h"
#include "bridge/backend/aten_names.h"

namespace spmdx::bridge {
namespace {

// Tags keep values of different kinds apart in a key.
enum Tag : uint64_t { kAbsent = 1, kInt, kReal, kRealParam, kBool, kText, kIntList, kRealList, kBoolList, kComplex };

void add_text(Key& key, const std::string& text) {
  key.push_back(kText);
  key.push_back(text.size());
  for (size_t i = 0; i < text.size(); i += 8) {
    uint64_t word = 0;
    for (size_t j = i; j < text.size() && j < i + 8; ++j) word = word << 8 | static_cast<unsigned char>(text[j]);
    key.push_back(word);
  }
}

void add_ints(Key& key, const std::vector<int64_t>& list) {
  key.push_back(kIntList);
  key.push_back(list.size());
  for (int64_t item : list) key.push_back(static_cast<uint64_t>(item));
}

void add_list(Key& key, const c10::IValue& value) {
  if (value.isIntList() || value.isSymIntList()) return add_ints(key, int_list(value));
  if (value.isDoubleList()) {
    key.push_back(kRealList);
    key.push_back(value.toDoubleVector().size());
    for (double item : value.toDoubleVector()) key.push_back(std::bit_cast<uint64_t>(item));
    return;
  }
  key.push_back(kBoolList);
  const auto items = value.toListRef();
  key.push_back(items.size());
  for (const auto& item : items) add_words(key, ArgumentKind::constant, item, true);
}

std::string complex_text(const c10::IValue& value) {
  const auto number = value.toComplexDouble();
  return "complex:" + std::to_string(std::bit_cast<uint64_t>(number.real())) + "," +
         std::to_string(std::bit_cast<uint64_t>(number.imag()));
}

std::vector<double> real_list(const c10::IValue& value) {
  std::vector<double> reals;
  for (const auto& item : value.toListRef()) reals.push_back(real_value(item));
  return reals;
}

Arg list_arg(const c10::IValue& value) {
  if (value.isIntList() || value.isSymIntList()) return int_list(value);
  if (value.isDoubleList()) return value.toDoubleVector();
  if (value.isBoolList()) {
    const auto list = value.toBoolList();
    return std::vector<bool>(list.begin(), list.end());
  }
  const auto items = value.toListRef();
  if (items.empty()) return std::vector<int64_t>{};
  if (items[0].isInt()) return int_list(value);
  if (items[0].isDouble()) return real_list(value);
  if (items[0].isBool()) {
    std::vector<bool> flags;
    for (const auto& item : items) flags.push_back(item.toBool());
    return flags;
  }
  throw ShardingError("an argument is a list of " + items[0].tagKind() +
                      ", which a graph cannot hold. Expected ints, floats or bools.");
}

bool is_real_param(ArgumentKind kind, const c10::IValue& value, bool constant_reals) {
  return !constant_reals && value.isDouble() && (kind == ArgumentKind::real || kind == ArgumentKind::number);
}

}  // namespace

void add_words(Key& key, ArgumentKind kind, const c10::IValue& value, bool constant_reals) {
  if (value.isNone() || kind == ArgumentKind::generator || kind == ArgumentKind::host_only) {
    key.push_back(kAbsent);
  } else if (value.isInt() || value.isSymInt()) {
    key.push_back(kInt);
    key.push_back(static_cast<uint64_t>(int_value(value)));
  } else if (value.isDouble()) {
    const bool param = is_real_param(kind, value, constant_reals);
    key.push_back(param ? kRealParam : kReal);
    if (!param) key.push_back(std::bit_cast<uint64_t>(value.toDouble()));
  } else if (value.isBool()) {
    key.push_back(kBool);
    key.push_back(value.toBool());
  } else if (value.isString()) {
    add_text(key, value.toStringRef());
  } else if (value.isList()) {
    add_list(key, value);
  } else if (value.isComplexDouble()) {
    key.push_back(kComplex);
    add_text(key, complex_text(value));
  } else {
    throw ShardingError("an argument of kind " + value.tagKind() +
                        " cannot be traced. Expected numbers, lists of "
                        "numbers, strings and tensors. Move the tensors to the CPU for this op.");
  }
}

void add_tensor(Key& key, const at::Tensor& tensor, bool host_scalar) {
  const auto* impl = tensor.unsafeGetTensorImpl();
  key.push_back(uint64_t{1} << 63 | static_cast<uint64_t>(tensor.is_conj()) << 62 |
                static_cast<uint64_t>(tensor.is_neg()) << 61 | static_cast<uint64_t>(tensor.scalar_type()) << 32 |
                static_cast<uint64_t>(impl->dim()) << 2 | static_cast<uint64_t>(impl->is_wrapped_number()) << 1 |
                static_cast<uint64_t>(host_scalar));
  for (int64_t size : impl->sizes()) key.push_back(static_cast<uint64_t>(size));
  for (int64_t stride : impl->strides()) key.push_back(static_cast<uint64_t>(stride));
}

int64_t int_value(const c10::IValue& value) {
  if (value.isSymInt()) return value.toSymInt().guard_int(__FILE__, __LINE__);
  return value.toInt();
}

std::vector<int64_t> int_list(const c10::IValue& value) {
  if (value.isInt() || value.isSymInt()) return {int_value(value)};
  if (value.isIntList()) return value.toIntVector();
  std::vector<int64_t> list;
  for (const auto& item : value.toListRef()) list.push_back(int_value(item));
  return list;
}

double real_value(const c10::IValue& value) {
  if (value.isDouble()) return value.toDouble();
  if (value.isBool()) return value.toBool();
  return static_cast<double>(int_value(value));
}

void add_params(std::vector<Param>& params, ArgumentKind kind, const c10::IValue& value, bool constant_reals) {
  if (is_real_param(kind, value, constant_reals)) params.push_back({.real = value.toDouble()});
}

Arg to_arg(ArgumentKind kind, const c10::IValue& value, bool constant_reals, uint32_t& next_param) {
  if (value.isNone() || kind == ArgumentKind::host_only) return std::monostate{};
  if (kind == ArgumentKind::generator) return OpaqueArg{"generator"};
  if (kind == ArgumentKind::dtype) return to_dtype(static_cast<c10::ScalarType>(int_value(value)));
  if (kind == ArgumentKind::memory_format) return OpaqueArg{"memory_format:" + std::to_string(int_value(value))};
  if (is_real_param(kind, value, constant_reals)) return RealParam{next_param++};
  if (value.isInt() || value.isSymInt()) return int_value(value);
  if (value.isDouble()) return value.toDouble();
  if (value.isBool()) return value.toBool();
  if (value.isString()) return value.toStringRef();
  if (value.isComplexDouble()) return OpaqueArg{complex_text(value)};
  return list_arg(value);
}

}  // namespace spmdx::bridge
