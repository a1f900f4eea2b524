// SPDX-License-Identifier: Apache-2.0
// Mesh: named axes over an ordered set of device ids, every axis cut into prime sub-axes.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/types.h"
#include "sharding/sub_axes.h"

namespace spmdx {

struct Axis {
  std::string name;
  int64_t size = 1;
  int64_t outer = 1;  // the major part of the size, which joins blocks of devices with fast links inside
  bool operator==(const Axis&) const = default;
};

// A prime factor of an axis: the axis seen as [pre, size, rest]. An axis of size 1 has no sub-axis.
struct SubAxis {
  int axis = 0;
  int64_t pre = 1;
  int64_t size = 1;
  int64_t stride = 1;  // of this digit in a device's position
  bool outer = false;  // of the outer part of its axis
};

class Mesh;
using MeshRef = std::shared_ptr<const Mesh>;

// Immutable. A *position* is a row-major index into the mesh (0 … size()-1); device_ids()[position] is
// the device that sits there.
class Mesh {
 public:
  // Throws ShardingError: empty or repeated ids, sizes whose product is not the number of ids, names
  // that repeat, are empty or do not match the number of axes. Empty `names`: "axis0", "axis1", ….
  // `outer`, if any, is the outer part of every size, a divisor of it.
  static MeshRef make(std::vector<int64_t> device_ids, std::vector<int64_t> shape, std::vector<std::string> names = {},
                      const std::vector<int64_t>& outer = {});

  const std::vector<int64_t>& device_ids() const { return device_ids_; }
  const std::vector<Axis>& axes() const { return axes_; }
  const std::vector<SubAxis>& sub_axes() const { return sub_axes_; }
  int64_t size() const { return static_cast<int64_t>(device_ids_.size()); }

  // Index of the axis called `name`, or -1.
  int axis_index(const std::string& name) const;
  // The sub-axes of one axis, major → minor.
  SubAxisList sub_axes_of_axis(int axis) const;

  int64_t sub_axis_size(SubAxisId sub_axis) const { return sub_axes_[sub_axis].size; }
  // This device's digit along `sub_axis`.
  int64_t digit(int64_t position, SubAxisId sub_axis) const {
    return (position / sub_axes_[sub_axis].stride) % sub_axes_[sub_axis].size;
  }
  // Devices that differ only along `sub_axes`, of which `position` is one: product of the sizes.
  int64_t group_size(SubAxisSet sub_axes) const;
  SubAxisSet all_sub_axes() const {
    return sub_axes_.size() == 64 ? ~SubAxisSet{0} : (SubAxisSet{1} << sub_axes_.size()) - 1;
  }

  bool operator==(const Mesh& other) const;
  uint64_t hash() const { return hash_; }
  std::string str() const;  // "Mesh(data=4, model=2)"; outer parts as "data=2*4"; ids where they are not 0 … n-1

 private:
  Mesh() = default;
  std::vector<int64_t> device_ids_;
  std::vector<Axis> axes_;
  std::vector<SubAxis> sub_axes_;
  uint64_t hash_ = 0;
};

}  // namespace spmdx
