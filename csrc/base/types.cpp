// SPDX-License-Identifier: Apache-2.0
// Types: the table of dtypes; text and hashes of shapes and tensor types.
#include "base/types.h"

#include <array>

namespace spmdx {
namespace {

enum class Kind : uint8_t { integer, floating, complex };

struct DTypeRow {
  std::string_view name;
  int64_t bytes;
  Kind kind;
};

// In the order of the enumerators of DType.
constexpr std::array<DTypeRow, 19> kDTypes = {{
    {"f32", 4, Kind::floating},    {"f64", 8, Kind::floating},    {"f16", 2, Kind::floating},
    {"bf16", 2, Kind::floating},   {"i8", 1, Kind::integer},      {"i16", 2, Kind::integer},
    {"i32", 4, Kind::integer},     {"i64", 8, Kind::integer},     {"u8", 1, Kind::integer},
    {"u16", 2, Kind::integer},     {"u32", 4, Kind::integer},     {"u64", 8, Kind::integer},
    {"b8", 1, Kind::integer},      {"c32", 4, Kind::complex},     {"c64", 8, Kind::complex},
    {"c128", 16, Kind::complex},   {"f8e4m3", 1, Kind::floating}, {"f8e5m2", 1, Kind::floating},
    {"unknown", 1, Kind::integer},
}};

const DTypeRow& row(DType dtype) { return kDTypes.at(static_cast<size_t>(dtype)); }

}  // namespace

std::string_view name(DType dtype) { return row(dtype).name; }
int64_t itemsize(DType dtype) { return row(dtype).bytes; }
bool is_floating(DType dtype) { return row(dtype).kind != Kind::integer; }
bool is_complex(DType dtype) { return row(dtype).kind == Kind::complex; }

std::optional<DType> parse_dtype(std::string_view text) {
  for (size_t i = 0; i < kDTypes.size(); ++i)
    if (kDTypes[i].name == text) return static_cast<DType>(i);
  return std::nullopt;
}

int64_t numel(const Shape& shape) {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  return n;
}

std::string str(const Shape& shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) out += (i ? ", " : "") + std::to_string(shape[i]);
  return out + "]";
}

std::string str(const TensorType& type) { return std::string(name(type.dtype)) + str(type.shape); }

uint64_t hash(const TensorType& type) {
  uint64_t h = hash_combine(static_cast<uint64_t>(type.dtype), type.wrapped_number);
  for (int64_t d : type.shape) h = hash_combine(h, static_cast<uint64_t>(d));
  return h;
}

}  // namespace spmdx
