// SPDX-License-Identifier: Apache-2.0
// Types: dtypes, shapes and tensor types, which every floor uses.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace spmdx {

// Names, sizes and kinds are in a table in types.cpp, in this order.
enum class DType : uint8_t {
  f32,
  f64,
  f16,
  bf16,
  i8,
  i16,
  i32,
  i64,
  u8,
  u16,
  u32,
  u64,
  b8,
  c32,
  c64,
  c128,
  f8e4m3,
  f8e5m2,
  unknown
};

std::string_view name(DType dtype);  // "f32"
int64_t itemsize(DType dtype);       // bytes per element
bool is_floating(DType dtype);       // true for real and complex floats
bool is_complex(DType dtype);
std::optional<DType> parse_dtype(std::string_view text);  // the dtype with that name, if there is one

using Shape = std::vector<int64_t>;
int64_t numel(const Shape& shape);  // the number of elements

// The dtype and the global shape of a value, as the user sees them. Strides are not part of a type.
struct TensorType {
  DType dtype = DType::f32;
  Shape shape;
  // True for a Python number that PyTorch wrapped in a 0-dim tensor: it does not promote dtypes.
  bool wrapped_number = false;

  bool operator==(const TensorType&) const = default;
  int64_t bytes() const { return numel(shape) * itemsize(dtype); }
};

std::string str(const TensorType& type);  // "f32[64, 128]"
std::string str(const Shape& shape);      // "[64, 128]"

// The seed of all hashes. No plan may depend on it, which tests check by planning with many seeds. It may be changed
// only before the first hash is computed.
inline uint64_t hash_seed = 0x9e3779b97f4a7c15ULL;

inline uint64_t hash_combine(uint64_t a, uint64_t b) {
  a ^= b + hash_seed + (a << 6) + (a >> 2);
  a *= 0xff51afd7ed558ccdULL;
  return a ^ (a >> 32);
}
uint64_t hash(const TensorType& type);

}  // namespace spmdx
