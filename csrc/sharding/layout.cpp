// SPDX-License-Identifier: Apache-2.0
// Which box of a value each device holds, and which devices hold the same.
#include <algorithm>

#include "base/error.h"
#include "sharding/cuts.h"

namespace spmdx {

int64_t volume(const Box& box) {
  int64_t elements = 1;
  for (const Range& range : box) elements *= range.extent;
  return elements;
}

Range part_of(int64_t size, int64_t count, int64_t index) {
  const int64_t rows = (size + count - 1) / count, start = std::min(index * rows, size);
  return {start, std::min(rows, size - start)};
}

Range local_range(const Mesh& mesh, const DimSharding& dim, int64_t size, int64_t position) {
  Range range{0, size};
  const std::vector<AtomId>& atoms = dim.atoms;
  for (size_t i = 0; i < atoms.size();) {
    // One cut: this atom and those that continue its axis.
    const int axis = mesh.atoms()[atoms[i]].axis;
    int64_t index = 0, parts = 1;
    size_t next = i;
    do {
      index = index * mesh.atom_size(atoms[next]) + mesh.digit(position, atoms[next]);
      parts *= mesh.atom_size(atoms[next]);
      ++next;
    } while (next < atoms.size() && atoms[next] == atoms[next - 1] + 1 && mesh.atoms()[atoms[next]].axis == axis);
    i = next;
    const int64_t chunk = chunk_size(range.extent, dim.granule, parts);
    const int64_t offset = std::min(index * chunk, range.extent);
    range = {range.start + offset, std::min(chunk, range.extent - offset)};
  }
  return range;
}

Box local_box(const Sharding& sharding, const Shape& shape, int64_t position) {
  internal_check(sharding.dims.size() == shape.size(), "a sharding whose rank is not that of the value");
  Box box(shape.size());
  for (size_t i = 0; i < shape.size(); ++i) box[i] = local_range(*sharding.mesh, sharding.dims[i], shape[i], position);
  return box;
}

Shape local_shape(const Sharding& sharding, const Shape& shape, int64_t position) {
  Shape local;
  local.reserve(shape.size());
  for (const Range& range : local_box(sharding, shape, position)) local.push_back(range.extent);
  return local;
}

int64_t max_local_numel(const Sharding& sharding, const Shape& shape) { return numel(local_shape(sharding, shape, 0)); }

int64_t num_distinct(const Mesh& mesh, AtomSet used) { return mesh.group_size(used); }

int64_t distinct_index(const Mesh& mesh, AtomSet used, int64_t position) {
  int64_t index = 0;
  for (size_t i = 0; i < mesh.atoms().size(); ++i) {
    const auto atom = static_cast<AtomId>(i);
    if (used >> i & 1) index = index * mesh.atom_size(atom) + mesh.digit(position, atom);
  }
  return index;
}

int64_t representative(const Mesh& mesh, AtomSet used, int64_t index) {
  int64_t position = 0;
  for (size_t i = mesh.atoms().size(); i-- > 0;) {
    if (!(used >> i & 1)) continue;
    const Atom& atom = mesh.atoms()[i];
    position += index % atom.size * atom.stride;
    index /= atom.size;
  }
  return position;
}

}  // namespace spmdx
