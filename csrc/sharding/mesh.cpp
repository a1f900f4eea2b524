// SPDX-License-Identifier: Apache-2.0
// Meshes: validation, the cut of axes into sub-axes, printing.
#include "sharding/mesh.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "base/error.h"

namespace spmdx {
namespace {

constexpr std::string_view kNotation = ",()[]{}@:/!'\" \t\n";  // characters with a meaning in printed types

std::string names_text(const std::vector<std::string>& names) {
  std::string out = "(";
  for (size_t i = 0; i < names.size(); ++i) out += (i ? ", '" : "'") + names[i] + "'";
  return out + (names.size() == 1 ? ",)" : ")");
}

std::vector<std::string> default_names(size_t count) {
  std::vector<std::string> names;
  for (size_t i = 0; i < count; ++i) names.push_back("axis" + std::to_string(i));
  return names;
}

void check_ids(const std::vector<int64_t>& ids) {
  if (ids.empty()) throw ShardingError("the mesh has no devices. Expected at least one device id. Write range(n).");
  std::set<int64_t> seen;
  for (int64_t id : ids) {
    if (id < 0)
      throw ShardingError("device id " + std::to_string(id) +
                          " is negative. Expected ids from 0. Write the ids of existing devices, as range(n).");
    if (!seen.insert(id).second)
      throw ShardingError("device id " + std::to_string(id) +
                          " is in the mesh twice. Expected every device once. Leave out the repeated id.");
  }
}

void check_shape(const std::vector<int64_t>& shape, size_t ids) {
  int64_t product = 1;
  const auto count = static_cast<int64_t>(ids);
  for (int64_t size : shape) {
    if (size < 1)
      throw ShardingError("the mesh shape " + str(shape) + " has an axis of size " + std::to_string(size) +
                          ". Expected sizes of at least 1. Leave the axis out, or make it 1.");
    // Sizes beyond the number of ids are wrong already; the bound keeps the product from overflowing.
    product = size > count ? count + 1 : std::min(product * size, count + 1);
  }
  if (product == count) return;
  std::string sizes;
  for (int64_t size : shape) sizes += (sizes.empty() ? "" : "·") + std::to_string(size);
  throw ShardingError("the mesh shape " + str(shape) + " does not hold " + std::to_string(ids) +
                      " devices. Expected sizes whose product (" + (sizes.empty() ? "1" : sizes) +
                      ") is the number of device ids. Change the shape, or give as many ids as it holds.");
}

void check_names(const std::vector<std::string>& names, size_t axes) {
  if (names.size() != axes)
    throw ShardingError("the number of axes of the mesh, " + std::to_string(axes) + ", is not that of their names, " +
                        std::to_string(names.size()) + ": " + names_text(names) +
                        ". Expected one name for each axis. Write as many names as the shape has sizes, or none.");
  std::set<std::string> seen;
  for (const std::string& name : names) {
    if (name.empty())
      throw ShardingError("an axis of the mesh has an empty name: " + names_text(names) +
                          ". Expected a name of at least one letter. Write names like ('data', 'model').");
    if (name.find_first_of(kNotation) != name.npos)
      throw ShardingError("the axis name '" + name + "' has a character that shardings are printed with. Expected " +
                          "letters, digits, '_', '-' or '.'. Write a name like 'data_parallel'.");
    if (!seen.insert(name).second)
      throw ShardingError("the axis name '" + name + "' is in the mesh twice: " + names_text(names) +
                          ". Expected different names. Rename one of them.");
  }
}

// The largest first: the last ones, whose devices have nearby numbers, lie within nodes of 2, 4 or 8 devices, however
// many nodes there are.
std::vector<int64_t> prime_factors(int64_t n) {
  std::vector<int64_t> factors;
  for (int64_t p = 2; p * p <= n; ++p)
    for (; n % p == 0; n /= p) factors.push_back(p);
  if (n > 1) factors.push_back(n);
  std::ranges::reverse(factors);
  return factors;
}

std::vector<SubAxis> cut_into_sub_axes(const std::vector<Axis>& axes, int64_t stride) {
  std::vector<SubAxis> sub_axes;
  for (size_t axis = 0; axis < axes.size(); ++axis) {
    int64_t pre = 1;
    const auto add = [&](int64_t part, bool outer) {
      for (int64_t prime : prime_factors(part)) {
        stride /= prime;
        sub_axes.push_back({static_cast<int>(axis), pre, prime, stride, outer});
        pre *= prime;
      }
    };
    add(axes[axis].outer, true);
    add(axes[axis].size / axes[axis].outer, false);
  }
  return sub_axes;
}

void check_outer(const std::vector<int64_t>& outer, const std::vector<int64_t>& shape) {
  bool divides = outer.size() == shape.size();
  for (size_t i = 0; divides && i < shape.size(); ++i) divides = outer[i] >= 1 && shape[i] % outer[i] == 0;
  if (divides) return;
  throw ShardingError("the outer shape " + str(outer) + " is no part of the mesh shape " + str(shape) +
                      ". Expected for each axis a divisor of its size. Write 1 for an axis inside the fast blocks.");
}

}  // namespace

MeshRef Mesh::make(std::vector<int64_t> device_ids, std::vector<int64_t> shape, std::vector<std::string> names,
                   const std::vector<int64_t>& outer) {
  check_ids(device_ids);
  check_shape(shape, device_ids.size());
  if (!outer.empty()) check_outer(outer, shape);
  if (names.empty()) names = default_names(shape.size());
  check_names(names, shape.size());
  std::shared_ptr<Mesh> mesh(new Mesh());
  mesh->device_ids_ = std::move(device_ids);
  for (size_t i = 0; i < shape.size(); ++i) mesh->axes_.push_back({names[i], shape[i], outer.empty() ? 1 : outer[i]});
  mesh->sub_axes_ = cut_into_sub_axes(mesh->axes_, mesh->size());
  uint64_t hash = 0;
  for (int64_t id : mesh->device_ids_) hash = hash_combine(hash, static_cast<uint64_t>(id));
  for (const Axis& axis : mesh->axes_) {
    hash = hash_combine(hash, static_cast<uint64_t>(axis.size));
    if (axis.outer != 1) hash = hash_combine(hash, static_cast<uint64_t>(axis.outer));
    for (char c : axis.name) hash = hash_combine(hash, static_cast<unsigned char>(c));
  }
  mesh->hash_ = hash;
  return mesh;
}

int Mesh::axis_index(const std::string& name) const {
  for (size_t i = 0; i < axes_.size(); ++i)
    if (axes_[i].name == name) return static_cast<int>(i);
  return -1;
}

SubAxisList Mesh::sub_axes_of_axis(int axis) const {
  SubAxisList sub_axes;
  for (size_t i = 0; i < sub_axes_.size(); ++i)
    if (sub_axes_[i].axis == axis) sub_axes.push_back(static_cast<SubAxisId>(i));
  return sub_axes;
}

int64_t Mesh::group_size(SubAxisSet sub_axes) const {
  int64_t size = 1;
  for (size_t i = 0; i < sub_axes_.size(); ++i)
    if (sub_axes >> i & 1) size *= sub_axes_[i].size;
  return size;
}

bool Mesh::operator==(const Mesh& other) const {
  return this == &other || (hash_ == other.hash_ && axes_ == other.axes_ && device_ids_ == other.device_ids_);
}

std::string Mesh::str() const {
  std::string out = "Mesh(";
  for (size_t i = 0; i < axes_.size(); ++i) {
    out += (i ? ", " : "") + axes_[i].name + "=";
    if (axes_[i].outer != 1) out += std::to_string(axes_[i].outer) + "*";
    out += std::to_string(axes_[i].size / axes_[i].outer);
  }
  std::vector<int64_t> iota(device_ids_.size());
  std::iota(iota.begin(), iota.end(), 0);
  if (device_ids_ != iota) out += (axes_.empty() ? "ids=" : ", ids=") + spmdx::str(device_ids_);
  return out + ")";
}

SubAxisList sub_axis_list(SubAxisSet set) {
  SubAxisList sub_axes;
  for (int i = 0; i < 64; ++i)
    if (set >> i & 1) sub_axes.push_back(static_cast<SubAxisId>(i));
  return sub_axes;
}

}  // namespace spmdx
