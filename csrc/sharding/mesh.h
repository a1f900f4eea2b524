// SPDX-License-Identifier: Apache-2.0
// Mesh: named axes over an ordered set of device ids, every axis cut into prime atoms.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/types.h"

namespace spmdx {

using AtomId = uint8_t;    // index into Mesh::atoms(); major → minor within an axis
using AtomSet = uint64_t;  // bit i set: atom i is a member

struct Axis {
  std::string name;
  int64_t size = 1;
  int64_t outer = 1;  // the major part of the size that leads from one fast block of devices to another
  bool operator==(const Axis&) const = default;
};

// A prime factor of an axis: the axis seen as [pre, size, rest]. An axis of size 1 has no atom.
struct Atom {
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
  const std::vector<Atom>& atoms() const { return atoms_; }
  int64_t size() const { return static_cast<int64_t>(device_ids_.size()); }

  // Index of the axis called `name`, or -1.
  int axis_index(const std::string& name) const;
  // The atoms of one axis, major → minor.
  std::vector<AtomId> axis_atoms(int axis) const;

  int64_t atom_size(AtomId atom) const { return atoms_[atom].size; }
  // This device's digit along `atom`.
  int64_t digit(int64_t position, AtomId atom) const { return (position / atoms_[atom].stride) % atoms_[atom].size; }
  // Devices that differ only along `atoms`, of which `position` is one: product of the sizes.
  int64_t group_size(AtomSet atoms) const;

  bool operator==(const Mesh& other) const;
  uint64_t hash() const { return hash_; }
  std::string str() const;  // "Mesh(data=4, model=2)"; outer parts as "data=2*4"; ids where they are not 0 … n-1

 private:
  Mesh() = default;
  std::vector<int64_t> device_ids_;
  std::vector<Axis> axes_;
  std::vector<Atom> atoms_;
  uint64_t hash_ = 0;
};

inline AtomSet atom_set(const std::vector<AtomId>& atoms) {
  AtomSet set = 0;
  for (AtomId a : atoms) set |= AtomSet{1} << a;
  return set;
}
std::vector<AtomId> atom_list(AtomSet set);  // ascending

}  // namespace spmdx
