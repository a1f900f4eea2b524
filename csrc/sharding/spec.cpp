// SPDX-License-Identifier: Apache-2.0
// Partition specs: from what users write to shardings and back, and the messages where they do not fit.
#include "sharding/spec.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace spmdx {
namespace {

std::string str(const SpecAxis& axis) {
  if (const auto* name = std::get_if<std::string>(&axis)) return "'" + *name + "'";
  return std::to_string(std::get<int64_t>(axis));
}

std::string str(const std::vector<SpecAxis>& entry) {
  if (entry.empty()) return "None";
  if (entry.size() == 1) return str(entry[0]);
  std::string out;
  for (const SpecAxis& axis : entry) out += (out.empty() ? "(" : ", ") + str(axis);
  return out + ")";
}

std::string count(size_t n, const std::string& what, const std::string& plural) {
  return std::to_string(n) + " " + (n == 1 ? what : plural);
}

size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t above = row[j + 1];
      row[j + 1] = std::min({above + 1, row[j] + 1, diagonal + (a[i] != b[j])});
      diagonal = above;
    }
  }
  return row.back();
}

struct Reader {
  const PartitionSpec& spec;
  const Mesh& mesh;
  const std::string tensor;

  std::string where(size_t dim) const { return "dim " + std::to_string(dim) + " of " + tensor; }

  [[noreturn]] void wrong_rank(size_t rank) const {
    PartitionSpec fixed = spec;
    // Leave out Nones first, the last one first, then whatever is beyond the rank.
    while (fixed.entries.size() > rank) {
      const auto none =
          std::find_if(fixed.entries.rbegin(), fixed.entries.rend(), [](const auto& entry) { return entry.empty(); });
      fixed.entries.erase(none == fixed.entries.rend() ? fixed.entries.end() - 1 : std::prev(none.base()));
    }
    fixed.entries.resize(rank);
    std::string what = tensor + " has rank " + std::to_string(rank);
    if (spec.entries.size() > rank && !spec.entries[rank].empty())
      what = where(rank) + " does not exist, so there is no room for " +
             (spec.entries[rank].size() == 1 ? "axis " : "axes ") + str(spec.entries[rank]) + ": " + what;
    throw ShardingError(what + ", but its partition spec " + spmdx::str(spec) + " has " +
                        count(spec.entries.size(), "entry", "entries") + ". Expected " +
                        count(rank, "entry", "entries") + ", one for each dim. Write " + spmdx::str(fixed) + ".");
  }

  [[noreturn]] void unknown_name(size_t dim, const std::string& name) const {
    std::string names, nearest;
    size_t best = name.size() / 2 + 1;
    for (const Axis& axis : mesh.axes()) {
      names += (names.empty() ? "'" : ", '") + axis.name + "'";
      const size_t distance = edit_distance(name, axis.name);
      if (distance < best) best = distance, nearest = axis.name;
    }
    const std::string mend = nearest.empty() ? "Write one of these names, or None to leave the dim whole."
                                             : "Write '" + nearest + "' instead of '" + name + "'.";
    throw ShardingError(where(dim) + " is to be cut by axis '" + name + "', which " + mesh.str() +
                        " does not have. Expected " +
                        (names.empty() ? "None: the mesh has no axes" : "one of " + names) + ". " + mend);
  }

  [[noreturn]] void bad_index(size_t dim, int64_t index) const {
    const auto axes = static_cast<int64_t>(mesh.axes().size());
    const std::string text = std::to_string(index);
    std::string what = where(dim) + " is to be cut by axis " + text + ", ";
    what += index < 0 ? "a negative index" : "but " + mesh.str() + " has " + count(axes, "axis", "axes");
    std::string mend = "Write None";
    if (axes > 0) {
      const int64_t meant = index < 0 ? std::max<int64_t>(index + axes, 0) : axes - 1;
      mend = "Write " + std::to_string(meant) + " or '" + mesh.axes()[meant].name + "' instead of " + text;
    }
    const std::string expected = axes == 0 ? "no index: the mesh has no axes"
                                           : "an index from 0 to " + std::to_string(axes - 1) + " or a name of an axis";
    throw ShardingError(what + ". Expected " + expected + ". " + mend + ".");
  }

  [[noreturn]] void repeated(size_t dim, size_t slot, size_t earlier, int axis) const {
    PartitionSpec fixed = spec;
    fixed.entries[dim].erase(fixed.entries[dim].begin() + static_cast<std::ptrdiff_t>(slot));
    const std::string dims = earlier == dim
                                 ? "twice in dim " + std::to_string(dim)
                                 : "in dim " + std::to_string(earlier) + " and in dim " + std::to_string(dim);
    throw ShardingError("axis '" + mesh.axes()[axis].name + "' cuts " + tensor + " " + dims + ": " + spmdx::str(spec) +
                        ". Expected every axis at most once. Write " + spmdx::str(fixed) + ".");
  }

  // The axis an entry names and the sub-axes it means.
  std::pair<int, SubAxisList> read(size_t dim, const SpecAxis& axis) const {
    if (const auto* index = std::get_if<int64_t>(&axis)) {
      if (*index < 0 || *index >= static_cast<int64_t>(mesh.axes().size())) bad_index(dim, *index);
      return {static_cast<int>(*index), mesh.sub_axes_of_axis(static_cast<int>(*index))};
    }
    const std::string& name = std::get<std::string>(axis);
    const int found = mesh.axis_index(name.substr(0, name.find(':')));
    if (found < 0) unknown_name(dim, name);
    return {found, parse_axis(mesh, name)};
  }
};

}  // namespace

std::string str(const PartitionSpec& spec) {
  std::string out = "(";
  for (size_t i = 0; i < spec.entries.size(); ++i) out += (i ? ", " : "") + str(spec.entries[i]);
  return out + (spec.entries.size() == 1 ? ",)" : ")");
}

ShardingRef to_sharding(const PartitionSpec& spec, const MeshRef& mesh, const Shape& shape, const std::string& tensor) {
  internal_check(mesh != nullptr, "a partition spec without a mesh");
  const Reader reader{spec, *mesh, tensor.empty() ? "the tensor" : tensor};
  if (spec.entries.size() != shape.size()) reader.wrong_rank(shape.size());
  Sharding sharding{mesh, std::vector<DimSharding>(shape.size()), 0, Reduction::none};
  std::vector<std::pair<int, size_t>> unit_axes;  // axes of size 1, which have no sub-axes, and their dims
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    for (size_t slot = 0; slot < spec.entries[dim].size(); ++slot) {
      const auto [axis, sub_axes] = reader.read(dim, spec.entries[dim][slot]);
      for (SubAxisId sub_axis : sub_axes)
        for (size_t earlier = 0; earlier <= dim; ++earlier)
          if (const auto& taken = sharding.dims[earlier].sub_axes; std::count(taken.begin(), taken.end(), sub_axis))
            reader.repeated(dim, slot, earlier, axis);
      for (const auto& [unit, earlier] : unit_axes)
        if (unit == axis) reader.repeated(dim, slot, earlier, axis);
      SubAxisList& into = sharding.dims[dim].sub_axes;
      into.append(sub_axes);
      if (sub_axes.empty()) unit_axes.push_back({axis, dim});
    }
    if (!is_legal(*mesh, sharding.dims[dim], shape[dim]))
      throw ShardingError(reader.where(dim) + ", of size " + std::to_string(shape[dim]) +
                          ", is to be cut by a part of an axis that does not divide it: " + str(spec.entries[dim]) +
                          ". Expected whole axes, or parts that divide evenly. " + "Write the whole axis, or None.");
  }
  return intern(std::move(sharding), shape);
}

PartitionSpec to_spec(const Sharding& sharding) {
  PartitionSpec spec;
  for (const DimSharding& dim : sharding.dims) {
    std::vector<SpecAxis> entry;
    for (std::string& name : axis_names(*sharding.mesh, dim.sub_axes)) entry.emplace_back(std::move(name));
    spec.entries.push_back(std::move(entry));
  }
  return spec;
}

}  // namespace spmdx
