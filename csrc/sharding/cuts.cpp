// SPDX-License-Identifier: Apache-2.0
// Axis references, and the pieces into which they cut a dim.
#include "sharding/cuts.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "base/error.h"

namespace spmdx {
namespace {

std::string quoted_axes(const Mesh& mesh) {
  std::string out;
  for (const Axis& axis : mesh.axes()) out += (out.empty() ? "'" : ", '") + axis.name + "'";
  return out.empty() ? "no axis at all" : out;
}

[[noreturn]] void bad_part(const Mesh& mesh, int axis, std::string_view text) {
  const Axis& whole = mesh.axes()[axis];
  throw ShardingError("'" + std::string(text) + "' is not a part of axis '" + whole.name + "' of " + mesh.str() +
                      ". Expected name:(p)k where p and p·k are products of the first prime factors of " +
                      std::to_string(whole.size) + ". Write '" + whole.name + "' for the whole axis.");
}

bool parse_number(std::string_view text, int64_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size() && value > 0;
}

// Cuts each of `ranges` into `parts`.
std::vector<Range> cut(const std::vector<Range>& ranges, int64_t tile, int64_t parts) {
  std::vector<Range> out;
  out.reserve(ranges.size() * parts);
  for (const Range& range : ranges) {
    const int64_t chunk = chunk_size(range.extent, tile, parts);
    for (int64_t i = 0; i < parts; ++i) {
      const int64_t offset = std::min(i * chunk, range.extent);
      out.push_back({range.start + offset, std::min(chunk, range.extent - offset)});
    }
  }
  return out;
}

// Adds the different extents of what `cut` makes of a range.
void add_extents(int64_t extent, int64_t tile, int64_t parts, std::set<int64_t>& extents) {
  const int64_t chunk = chunk_size(extent, tile, parts);
  extents.insert(std::min(chunk, extent));
  if (chunk > 0 && chunk < extent && extent % chunk) extents.insert(extent % chunk);
  if (chunk * (parts - 1) >= extent) extents.insert(0);
}

int64_t pieces_count(const Mesh& mesh, const DimSharding& dim) {
  int64_t n = 1;
  for (SubAxisId sub_axis : dim.sub_axes) n *= mesh.sub_axis_size(sub_axis);
  return n;
}

}  // namespace

std::vector<AxisRef> axis_refs(const Mesh& mesh, const SubAxisList& sub_axes) {
  std::vector<AxisRef> refs;
  for (size_t i = 0; i < sub_axes.size(); ++i) {
    const SubAxis& sub_axis = mesh.sub_axes()[sub_axes[i]];
    const bool continues = i > 0 && sub_axes[i] == sub_axes[i - 1] + 1 && refs.back().axis == sub_axis.axis;
    if (continues) {
      refs.back().size *= sub_axis.size;
    } else {
      refs.push_back({sub_axis.axis, sub_axis.pre, sub_axis.size, false});
    }
    refs.back().whole = refs.back().size == mesh.axes()[sub_axis.axis].size;
  }
  return refs;
}

SubAxisList sub_axes_of(const Mesh& mesh, const AxisRef& ref) {
  SubAxisList sub_axes;
  for (SubAxisId sub_axis : mesh.sub_axes_of_axis(ref.axis)) {
    const int64_t pre = mesh.sub_axes()[sub_axis].pre;
    if (pre >= ref.pre && pre < ref.pre * ref.size) sub_axes.push_back(sub_axis);
  }
  return sub_axes;
}

std::string str(const Mesh& mesh, const AxisRef& ref) {
  const std::string& name = mesh.axes()[ref.axis].name;
  if (ref.whole) return name;
  return name + ":(" + std::to_string(ref.pre) + ")" + std::to_string(ref.size);
}

std::vector<std::string> axis_names(const Mesh& mesh, const SubAxisList& sub_axes) {
  std::vector<std::string> names;
  for (const AxisRef& ref : axis_refs(mesh, sub_axes)) names.push_back(str(mesh, ref));
  return names;
}

SubAxisList parse_axis(const Mesh& mesh, std::string_view text) {
  const size_t colon = text.find(':');
  const std::string name(text.substr(0, colon));
  const int axis = mesh.axis_index(name);
  if (axis < 0) {
    throw ShardingError(mesh.str() + " has no axis '" + name + "'. Expected one of " + quoted_axes(mesh) +
                        ". Write one of these names.");
  }
  if (colon == text.npos) return mesh.sub_axes_of_axis(axis);
  const std::string_view part = text.substr(colon + 1);
  const size_t close = part.find(')');
  AxisRef ref{axis, 1, 1, false};
  if (!part.starts_with('(') || close == part.npos || !parse_number(part.substr(1, close - 1), ref.pre) ||
      !parse_number(part.substr(close + 1), ref.size))
    bad_part(mesh, axis, text);
  SubAxisList sub_axes = sub_axes_of(mesh, ref);
  const std::vector<AxisRef> found = axis_refs(mesh, sub_axes);
  if (found.size() != 1 || found[0].pre != ref.pre || found[0].size != ref.size) bad_part(mesh, axis, text);
  return sub_axes;
}

Range local_range(const Mesh& mesh, const DimSharding& dim, int64_t size, int64_t position) {
  Range range{0, size};
  const SubAxisList& sub_axes = dim.sub_axes;
  for (size_t i = 0; i < sub_axes.size();) {
    // One cut: this sub-axis and those that continue its axis.
    const int axis = mesh.sub_axes()[sub_axes[i]].axis;
    int64_t index = 0, parts = 1;
    size_t next = i;
    do {
      index = index * mesh.sub_axis_size(sub_axes[next]) + mesh.digit(position, sub_axes[next]);
      parts *= mesh.sub_axis_size(sub_axes[next]);
      ++next;
    } while (next < sub_axes.size() && sub_axes[next] == sub_axes[next - 1] + 1 &&
             mesh.sub_axes()[sub_axes[next]].axis == axis);
    i = next;
    const int64_t chunk = chunk_size(range.extent, dim.tile, parts);
    const int64_t offset = std::min(index * chunk, range.extent);
    range = {range.start + offset, std::min(chunk, range.extent - offset)};
  }
  return range;
}

std::vector<Range> pieces(const Mesh& mesh, const DimSharding& dim, int64_t size) {
  std::vector<Range> ranges = {{0, size}};
  for (const AxisRef& ref : axis_refs(mesh, dim.sub_axes)) ranges = cut(ranges, dim.tile, ref.size);
  return ranges;
}

bool refines(const Mesh& mesh, const DimSharding& fine, const DimSharding& coarse, int64_t size) {
  const int64_t fine_count = pieces_count(mesh, fine), coarse_count = pieces_count(mesh, coarse);
  if (size % (fine_count * fine.tile) == 0 && size % (coarse_count * coarse.tile) == 0) return true;
  const std::vector<Range> parts = pieces(mesh, fine, size), wholes = pieces(mesh, coarse, size);
  const int64_t each = fine_count / coarse_count;
  for (int64_t i = 0; i < coarse_count; ++i) {
    const Range& first = parts[i * each];
    const Range& last = parts[(i + 1) * each - 1];
    if (wholes[i].extent == 0 && last.start + last.extent == first.start) continue;
    if (first.start != wholes[i].start) return false;
    if (last.start + last.extent != wholes[i].start + wholes[i].extent) return false;
  }
  return true;
}

bool is_legal(const Mesh& mesh, const DimSharding& dim, int64_t size) {
  if (size % (pieces_count(mesh, dim) * dim.tile) == 0) return true;
  std::set<int64_t> extents = {size};  // that pieces have so far: a few, however many pieces there are
  for (const AxisRef& ref : axis_refs(mesh, dim.sub_axes)) {
    std::set<int64_t> smaller;
    for (int64_t extent : extents) {
      if (!ref.whole && chunk_size(extent, dim.tile, ref.size) * ref.size != extent) return false;
      add_extents(extent, dim.tile, ref.size, smaller);
    }
    extents = std::move(smaller);
  }
  return true;
}

bool same_cuts(const Mesh& mesh, const DimSharding& a, const DimSharding& b, int64_t size) {
  if (a.sub_axes == b.sub_axes) {
    if (a.tile == b.tile || a.empty()) return true;
    const int64_t count = pieces_count(mesh, a);
    if (size % (count * a.tile) == 0 && size % (count * b.tile) == 0) return true;
    return pieces(mesh, a, size) == pieces(mesh, b, size);
  }
  for (int64_t position = 0; position < mesh.size(); ++position)
    if (local_range(mesh, a, size, position) != local_range(mesh, b, size, position)) return false;
  return true;
}

}  // namespace spmdx
