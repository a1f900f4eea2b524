// SPDX-License-Identifier: Apache-2.0
// Missing boxes: in closed form where cuts divide, else device by device.
#include "sharding/reshard/missing.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"
#include "sharding/shards.h"

namespace spmdx {
namespace {

constexpr int64_t kMaxMeasured = 4096;  // devices that are looked at one by one

using Cuts = std::vector<DimSharding>;

int64_t parts(const Mesh& mesh, const SubAxisList& sub_axes, size_t first) {
  int64_t count = 1;
  for (size_t i = first; i < sub_axes.size(); ++i) count *= mesh.sub_axis_size(sub_axes[i]);
  return count;
}

bool divides(const Mesh& mesh, const DimSharding& dim, int64_t size) {
  return size % (parts(mesh, dim.sub_axes, 0) * dim.tile) == 0;
}

// How a block is cut after the common prefix of two cuts of a dim.
struct Rest {
  size_t prefix = 0;
  int64_t from = 1, to = 1;

  bool apart() const { return from > 1 && to > 1; }
  bool nests() const { return from % to == 0 || to % from == 0; }
  // Pieces of `from` that a piece of `to` meets at most.
  int64_t met() const { return from % to == 0 ? from / to : to % from == 0 ? 1 : (from + to - 1) / to + 1; }
};

Rest rest_of(const Mesh& mesh, const DimSharding& from, const DimSharding& to) {
  const size_t prefix = common_prefix(from.sub_axes, to.sub_axes);
  return {prefix, parts(mesh, from.sub_axes, prefix), parts(mesh, to.sub_axes, prefix)};
}

// Where all cuts divide, extents are equal everywhere. Two cuts of a dim are nested, and overlap by the smaller piece,
// or some device finds nothing of its new piece in its old one: the sub-axes behind the common prefix are independent.
Missing missing_of_even(const Mesh& mesh, const Shape& shape, const Cuts& from, const Cuts& to) {
  int64_t wanted = 1, present = 1, met = 1;
  bool apart = false;
  for (size_t i = 0; i < shape.size(); ++i) {
    const int64_t old = parts(mesh, from[i].sub_axes, 0), now = parts(mesh, to[i].sub_axes, 0);
    const Rest rest = rest_of(mesh, from[i], to[i]);
    apart = apart || rest.apart();
    wanted *= shape[i] / now;
    present *= shape[i] / std::max(old, now);
    met *= rest.met();
  }
  if (apart) return {wanted, met};
  return {wanted - present, wanted == present ? 0 : met - 1};
}

// How many pieces a range meets. REQUIRES: they are disjoint and in order, and none is empty.
int64_t met_by(const Range& range, const std::vector<Range>& pieces) {
  const auto first = std::ranges::partition_point(pieces, [&](const Range& one) { return one.stop() <= range.start; });
  const auto ends = [&](const Range& one) { return one.start < range.stop(); };
  return range.extent == 0 ? 0 : std::partition_point(first, pieces.end(), ends) - first;
}

// Looks at the digits of sub-axes of dims that change; other dims do not matter.
Missing missing_of_each(const Mesh& mesh, const Shape& shape, const Cuts& from, const Cuts& to) {
  SubAxisSet sub_axes = 0;
  int64_t constant = 1;
  std::vector<size_t> changed;
  std::vector<std::vector<Range>> sources;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (from[i] == to[i]) {
      constant *= local_range(mesh, to[i], shape[i], 0).extent;
      continue;
    }
    sub_axes |= sub_axis_set(from[i].sub_axes) | sub_axis_set(to[i].sub_axes);
    changed.push_back(i);
    sources.push_back(pieces(mesh, from[i], shape[i]));
    std::erase_if(sources.back(), [](const Range& piece) { return piece.extent == 0; });
  }
  Missing most;
  const int64_t count = num_distinct(mesh, sub_axes);
  for (int64_t index = 0; index < count; ++index) {
    const int64_t position = representative(mesh, sub_axes, index);
    int64_t wanted = constant, present = constant, met = 1;
    for (size_t k = 0; k < changed.size(); ++k) {
      const size_t i = changed[k];
      const Range now = local_range(mesh, to[i], shape[i], position);
      wanted *= now.extent;
      present *= overlap(local_range(mesh, from[i], shape[i], position), now).extent;
      met *= met_by(now, sources[k]);
    }
    most.elements = std::max(most.elements, wanted - present);
    if (wanted > present) most.peers = std::max(most.peers, met - (present > 0));
  }
  return most;
}

// The digits of sub-axes of dims that change, taken together.
int64_t different_devices(const Mesh& mesh, const Cuts& from, const Cuts& to) {
  SubAxisSet sub_axes = 0;
  for (size_t i = 0; i < from.size(); ++i)
    if (from[i] != to[i]) sub_axes |= sub_axis_set(from[i].sub_axes) | sub_axis_set(to[i].sub_axes);
  return mesh.group_size(sub_axes);
}

}  // namespace

Missing missing(const Mesh& mesh, const Shape& shape, const Cuts& from, const Cuts& to) {
  bool even = true, nests = true;
  int64_t largest = 1;
  for (size_t i = 0; i < shape.size(); ++i) {
    even = even && shape[i] > 0 && divides(mesh, from[i], shape[i]) && divides(mesh, to[i], shape[i]);
    nests = nests && rest_of(mesh, from[i], to[i]).nests();
    largest *= local_range(mesh, to[i], shape[i], 0).extent;
  }
  const int64_t devices = different_devices(mesh, from, to);
  if (even && (nests || devices > kMaxMeasured)) return missing_of_even(mesh, shape, from, to);
  return devices <= kMaxMeasured ? missing_of_each(mesh, shape, from, to) : Missing{largest, devices - 1};
}

Missing missing(const Sharding& from, const Sharding& to, const Shape& shape) {
  internal_check(from.partial == 0 && to.partial == 0, "a partial value between two meshes");
  std::map<int64_t, Box> held;
  std::map<std::vector<int64_t>, Box> shards;  // by first element: distinct shards are disjoint
  for (int64_t position = 0; position < from.mesh->size(); ++position) {
    Box box = local_box(from, shape, position);
    std::vector<int64_t> first;
    for (const Range& range : box) first.push_back(range.start);
    if (volume(box) > 0) shards.emplace(std::move(first), box);
    held.emplace(from.mesh->device_ids()[position], std::move(box));
  }
  Missing most;
  for (int64_t position = 0; position < to.mesh->size(); ++position) {
    const Box wanted = local_box(to, shape, position);
    const auto own = held.find(to.mesh->device_ids()[position]);
    const int64_t present = own == held.end() ? 0 : overlap(own->second, wanted);
    if (volume(wanted) == present) continue;
    most.elements = std::max(most.elements, volume(wanted) - present);
    const auto met = std::count_if(shards.begin(), shards.end(),
                                   [&](const auto& shard) { return overlap(shard.second, wanted) > 0; });
    most.peers = std::max<int64_t>(most.peers, met - (present > 0));
  }
  return most;
}

SubAxisSet exchanging_sub_axes(const Mesh& mesh, const Shape& shape, const Cuts& from, const Cuts& to) {
  SubAxisSet sub_axes = 0;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (from[i] == to[i]) continue;
    sub_axes |= sub_axis_set(from[i].sub_axes) | sub_axis_set(to[i].sub_axes);
    const size_t prefix = rest_of(mesh, from[i], to[i]).prefix;
    const DimSharding shared{{to[i].sub_axes.begin(), to[i].sub_axes.begin() + static_cast<std::ptrdiff_t>(prefix)},
                             to[i].tile};
    // Both only subdivide what the prefix cuts: nothing crosses it.
    if (is_legal(mesh, shared, shape[i]) && refines(mesh, from[i], shared, shape[i]) &&
        refines(mesh, to[i], shared, shape[i]))
      sub_axes &= ~sub_axis_set(shared.sub_axes);
  }
  return sub_axes;
}

bool group_holds(const Sharding& from, const Sharding& to, const Shape& shape, SubAxisSet sub_axes, int64_t position) {
  const Mesh& mesh = *from.mesh;
  const Box wanted = local_box(to, shape, position);
  const SubAxisSet cuts = from.dim_sub_axes() & sub_axes;  // members that differ along other sub-axes hold the same
  int64_t here = position;
  for (SubAxisId sub_axis : sub_axis_list(cuts))
    here -= mesh.digit(position, sub_axis) * mesh.sub_axes()[sub_axis].stride;
  int64_t found = 0;
  for (int64_t i = 0; i < num_distinct(mesh, cuts); ++i)
    found += overlap(local_box(from, shape, here + representative(mesh, cuts, i)), wanted);
  return found == volume(wanted);
}

}  // namespace spmdx
