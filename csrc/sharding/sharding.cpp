// SPDX-License-Identifier: Apache-2.0
// Shardings: the table of interned ones, and the names of reductions.
#include "sharding/sharding.h"

#include <array>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "base/error.h"

namespace spmdx {
namespace {

// In the order of the enumerators of Reduction.
constexpr std::array<std::string_view, 7> kReductions = {"none", "sum", "max", "min", "prod", "any", "all"};

struct ByValue {
  using is_transparent = void;
  size_t operator()(const Sharding& sharding) const {
    uint64_t h = hash_combine(sharding.mesh->hash(), sharding.partial);
    h = hash_combine(h, static_cast<uint64_t>(sharding.reduction));
    if (!sharding.place.plain()) h = hash_combine(h, hash(sharding.place));
    for (const DimSharding& dim : sharding.dims) h = hash_combine(h, dim);
    return h;
  }
  size_t operator()(const Sharding* sharding) const { return (*this)(*sharding); }

  bool operator()(const Sharding& a, const Sharding* b) const { return a == *b; }
  bool operator()(const Sharding* a, const Sharding& b) const { return *a == b; }
  bool operator()(const Sharding* a, const Sharding* b) const { return *a == *b; }
};

constexpr size_t kKept = 1 << 14;  // half of the unused shardings that are kept, since searches come back to them

// Finds a sharding as long as something holds it. Never destroyed, since statics may hold shardings until the end.
struct Table {
  std::mutex mutex;
  std::unordered_map<const Sharding*, std::weak_ptr<const Sharding>, ByValue, ByValue> shardings;
  std::vector<ShardingRef> latest, older;  // two generations
};
Table& table() {
  static Table* table = new Table();
  return *table;
}

void check_well_formed(const Sharding& sharding) {
  internal_check(sharding.mesh != nullptr, "a sharding without a mesh");
  SubAxisSet seen = sharding.partial;
  const size_t count = sharding.mesh->sub_axes().size();
  internal_check(count >= 64 || seen >> count == 0, "a sharding partial over a sub-axis its mesh does not have");
  for (const DimSharding& dim : sharding.dims) {
    internal_check(dim.tile >= 1, "a sharding with a tile below 1");
    for (SubAxisId sub_axis : dim.sub_axes) {
      internal_check(sub_axis < count, "a sharding with a sub-axis its mesh does not have");
      internal_check(!(seen >> sub_axis & 1), "a sharding that uses a sub-axis twice");
      seen |= SubAxisSet{1} << sub_axis;
    }
  }
  if (!sharding.place.whole())
    for (SubAxisId sub_axis : sharding.mesh->sub_axes_of_axis(sharding.place.axis))
      internal_check(!(seen >> sub_axis & 1), "a sharding that cuts by the axis of its place");
  internal_check((sharding.partial == 0) == (sharding.reduction == Reduction::none),
                 "a sharding whose reduction and partial sub-axes disagree");
}

// Nothing holds it any more; an equal one may have taken its place.
void forget(const Sharding* sharding) {
  {
    Table& all = table();
    const std::lock_guard lock(all.mutex);
    if (const auto found = all.shardings.find(sharding); found != all.shardings.end() && found->first == sharding)
      all.shardings.erase(found);
  }
  delete sharding;
}

ShardingRef find_or_add(Sharding sharding) {
  Table& all = table();
  std::vector<ShardingRef> oldest;  // freed after the lock is released, since freeing takes it
  const std::lock_guard lock(all.mutex);
  const auto found = all.shardings.find(sharding);
  if (found != all.shardings.end()) {
    if (ShardingRef held = found->second.lock()) return held;
    all.shardings.erase(found);
  }
  ShardingRef added(new Sharding(std::move(sharding)), forget);
  all.shardings.emplace(added.get(), added);
  all.latest.push_back(added);
  if (all.latest.size() >= kKept) {
    oldest = std::exchange(all.older, std::exchange(all.latest, {}));
  }
  return added;
}

}  // namespace

size_t shardings_kept() {
  Table& all = table();
  const std::lock_guard lock(all.mutex);
  return all.shardings.size();
}

std::string_view name(Reduction reduction) { return kReductions.at(static_cast<size_t>(reduction)); }

std::optional<Reduction> parse_reduction(std::string_view text) {
  for (size_t i = 0; i < kReductions.size(); ++i)
    if (kReductions[i] == text) return static_cast<Reduction>(i);
  return std::nullopt;
}

bool Sharding::operator==(const Sharding& other) const {
  return partial == other.partial && reduction == other.reduction && place == other.place && dims == other.dims &&
         (mesh == other.mesh || *mesh == *other.mesh);
}

SubAxisSet Sharding::dim_sub_axes() const {
  SubAxisSet set = 0;
  for (const DimSharding& dim : dims) set |= sub_axis_set(dim.sub_axes);
  return set;
}

SubAxisSet Sharding::used() const { return dim_sub_axes() | partial; }

ShardingRef intern(Sharding sharding, const Shape& shape) {
  check_well_formed(sharding);
  if (sharding.dims.size() != shape.size())  // called very often, so the message is made only when it is needed
    throw InternalError("a sharding of rank " + std::to_string(sharding.dims.size()) + " for a value of shape " +
                        str(shape));
  for (size_t i = 0; i < shape.size(); ++i) {
    DimSharding& dim = sharding.dims[i];
    if (dim.tile == 1) continue;
    if (same_cuts(*sharding.mesh, dim, {dim.sub_axes, 1}, shape[i])) dim.tile = 1;
  }
  return find_or_add(std::move(sharding));
}

ShardingRef on(const ShardingRef& sharding, const Place& place) {
  if (!sharding || sharding->place == place) return sharding;
  Sharding moved = *sharding;
  moved.place = place;
  check_well_formed(moved);
  return find_or_add(std::move(moved));
}

ShardingRef at_stage(const ShardingRef& sharding, const std::string& axis, int64_t stage) {
  const Mesh& mesh = *sharding->mesh;
  const int index = mesh.axis_index(axis);
  if (index < 0 || stage < 0 || stage >= kMostStages)
    throw ShardingError("'" + axis + "=" + std::to_string(stage) + "' is no place of " + mesh.str() +
                        ". Expected an axis of the mesh and a stage from 0 to " + std::to_string(kMostStages - 1) +
                        ". Pass the axis along which the stages lie.");
  if (sharding->used() & sub_axis_set(mesh.sub_axes_of_axis(index)))
    throw ShardingError("axis '" + axis + "' cuts a dim of the tensor, and is to hold stages. Expected an axis to do " +
                        "one of both. Cut by another axis, or put the stages along another one.");
  return on(sharding, {index, stage});
}

ShardingRef replicated(const MeshRef& mesh, size_t rank) {
  internal_check(mesh != nullptr, "a replicated sharding without a mesh");
  return find_or_add({mesh, std::vector<DimSharding>(rank), 0, Reduction::none, {}});
}

}  // namespace spmdx
