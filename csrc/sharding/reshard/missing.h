// SPDX-License-Identifier: Apache-2.0
// The direct exchange sends every device exactly the boxes that it lacks: what it moves, and between which devices.
#pragma once
#include <cstdint>
#include <vector>

#include "sharding/sharding.h"

namespace spmdx {

// Of the device that receives most: elements, and the devices they come from.
struct Missing {
  int64_t elements = 0;
  int64_t peers = 0;
};

// Between two ways to cut a value on one mesh. Exact; an upper bound where more than 4096 devices differ and the cuts
// do not divide.
Missing missing(const Mesh& mesh, const Shape& shape, const std::vector<DimSharding>& from,
                const std::vector<DimSharding>& to);
// Between two meshes, by device id. REQUIRES: neither sharding is partial.
Missing missing(const Sharding& from, const Sharding& to, const Shape& shape);

// The sub-axes along which devices exchange boxes: all that a device lacks is with those that differ from it along
// them.
SubAxisSet exchanging_sub_axes(const Mesh& mesh, const Shape& shape, const std::vector<DimSharding>& from,
                               const std::vector<DimSharding>& to);

// Whether what the device at `position` holds under `to` is there under `from`, on the devices that differ from it
// along `sub_axes`. Reads nothing but boxes. REQUIRES: one mesh.
bool group_holds(const Sharding& from, const Sharding& to, const Shape& shape, SubAxisSet sub_axes, int64_t position);

}  // namespace spmdx
