// SPDX-License-Identifier: Apache-2.0
// Collectives when every device of the mesh lives in this process: a function over buffers, box by box.
#include <map>
#include <mutex>

#include "base/error.h"
#include "runtime/comm.h"

namespace spmdx {
namespace {

// A part of one source shard and where it goes in a fragment.
struct Piece {
  size_t source = 0;
  Box source_box;               // relative to the source shard
  std::vector<int64_t> starts;  // in the fragment
};

// One term of a target shard's sum: it covers the whole shard.
struct Fragment {
  std::vector<Piece> pieces;
  bool whole_source = false;  // the one piece is all of its source
};

struct Target {
  Shape shape;
  bool identity = false;            // not the first coordinate of a new partial: adds nothing
  std::vector<Fragment> fragments;  // in order of the coordinates that are reduced
};

using Recipe = std::vector<Target>;  // by distinct index of `to`

// The part of the wanted box that the source holds; false where there is none.
bool intersect(const Box& source, const Box& wanted, Piece& piece) {
  for (size_t d = 0; d < wanted.size(); ++d) {
    const int64_t start = std::max(source[d].start, wanted[d].start);
    const int64_t stop = std::min(source[d].start + source[d].extent, wanted[d].start + wanted[d].extent);
    if (start >= stop) return false;
    piece.source_box.push_back({start - source[d].start, stop - start});
    piece.starts.push_back(start - wanted[d].start);
  }
  return true;
}

// The part of a position that the digits of `atoms` make up.
int64_t restrict_to(const Mesh& mesh, AtomSet atoms, int64_t position) {
  return atoms ? representative(mesh, atoms, distinct_index(mesh, atoms, position)) : 0;
}

// Digits of disjoint sets of atoms add up to a position.
Fragment find_fragment(const Shape& shape, const Sharding& from, const Box& wanted, int64_t partial_digits) {
  const Mesh& mesh = *from.mesh;
  const AtomSet cuts = from.dim_atoms();
  Fragment fragment;
  int64_t found = 0, needed = 1;
  for (const Range& range : wanted) needed *= range.extent;
  const int64_t sources = cuts ? num_distinct(mesh, cuts) : 1;
  for (int64_t i = 0; i < sources && found < needed; ++i) {
    const int64_t position = partial_digits + (cuts ? representative(mesh, cuts, i) : 0);
    const Box box = local_box(from, shape, position);
    Piece piece;
    if (!intersect(box, wanted, piece)) continue;
    piece.source = from.used() ? static_cast<size_t>(distinct_index(mesh, from.used(), position)) : 0;
    int64_t elements = 1, held = 1;
    for (size_t d = 0; d < box.size(); ++d) {
      elements *= piece.source_box[d].extent;
      held *= box[d].extent;
    }
    found += elements;
    fragment.whole_source = elements == held && elements == needed;
    fragment.pieces.push_back(std::move(piece));
  }
  internal_check(found == needed, "the shards of a value do not cover it");
  return fragment;
}

Target make_target(const Shape& shape, const Sharding& from, const Sharding& to, int64_t position) {
  const Mesh& mesh = *from.mesh;
  const AtomSet kept = from.partial & to.partial, dropped = from.partial & ~to.partial,
                added = to.partial & ~from.partial;
  Target target;
  const Box wanted = local_box(to, shape, position);
  for (const Range& range : wanted) target.shape.push_back(range.extent);
  target.identity = restrict_to(mesh, added, position) != 0;
  if (target.identity || numel(target.shape) == 0) return target;
  const int64_t kept_digits = restrict_to(mesh, kept, position);
  const int64_t terms = dropped ? num_distinct(mesh, dropped) : 1;
  for (int64_t t = 0; t < terms; ++t)
    target.fragments.push_back(
        find_fragment(shape, from, wanted, kept_digits + (dropped ? representative(mesh, dropped, t) : 0)));
  return target;
}

// Between two meshes, what a device holds is found by boxes alone: nothing may be left to sum.
Recipe make_recipe(const Shape& shape, const Sharding& from, const Sharding& to) {
  internal_check(from.mesh && to.mesh && (*from.mesh == *to.mesh || !(from.partial | to.partial)),
                 "a sum between two meshes");
  internal_check(!(from.partial & to.partial) || from.reduction == to.reduction,
                 "a collective that changes the reduction of a partial value");
  Recipe recipe;
  const int64_t count = to.used() ? num_distinct(*to.mesh, to.used()) : 1;
  for (int64_t i = 0; i < count; ++i)
    recipe.push_back(make_target(shape, from, to, to.used() ? representative(*to.mesh, to.used(), i) : 0));
  return recipe;
}

class LocalComm final : public Comm {
 public:
  explicit LocalComm(Backend& backend) : backend_(backend) {}

  Shards run(Collective, const TensorType& type, const Shards& shards, ShardingRef from, ShardingRef to) override {
    const std::shared_ptr<const Recipe> recipe = recipe_for(type.shape, from, to);
    Shards result;
    result.reserve(recipe->size());
    for (const Target& target : *recipe) result.push_back(make_shard(target, type.dtype, shards, *from, *to));
    return result;
  }

 private:
  // Keyed by pointers: shardings are interned and never freed.
  std::shared_ptr<const Recipe> recipe_for(const Shape& shape, ShardingRef from, ShardingRef to) {
    std::lock_guard lock(mutex_);
    if (recipes_.size() >= kMostRecipes) recipes_.clear();
    std::shared_ptr<const Recipe>& recipe = recipes_[{from, to, shape}];
    if (!recipe) recipe = std::make_shared<const Recipe>(make_recipe(shape, *from, *to));
    return recipe;
  }

  BufferRef make_shard(const Target& target, DType dtype, const Shards& shards, const Sharding& from,
                       const Sharding& to) {
    if (target.identity) return backend_.identity(dtype, target.shape, to.reduction);
    if (target.fragments.empty()) return backend_.empty(dtype, target.shape);
    if (target.fragments.size() == 1) return assemble(target.fragments[0], target.shape, dtype, shards);
    std::vector<BufferRef> terms;
    for (const Fragment& fragment : target.fragments) terms.push_back(assemble(fragment, target.shape, dtype, shards));
    return backend_.reduce(terms, from.reduction);
  }

  BufferRef assemble(const Fragment& fragment, const Shape& shape, DType dtype, const Shards& shards) {
    for (const Piece& piece : fragment.pieces)
      internal_check(piece.source < shards.size() && shards[piece.source], "a collective misses a shard");
    const Piece& first = fragment.pieces[0];
    if (fragment.whole_source) return shards[first.source];
    if (fragment.pieces.size() == 1) return backend_.narrow(shards[first.source], first.source_box);
    BufferRef whole = backend_.empty(dtype, shape);
    for (const Piece& piece : fragment.pieces)
      backend_.copy_box(whole, piece.starts, shards[piece.source], piece.source_box);
    return whole;
  }

  static constexpr size_t kMostRecipes = 4096;
  Backend& backend_;
  std::mutex mutex_;
  std::map<std::tuple<ShardingRef, ShardingRef, Shape>, std::shared_ptr<const Recipe>> recipes_;
};

}  // namespace

std::unique_ptr<Comm> make_local_comm(Backend& backend) { return std::make_unique<LocalComm>(backend); }

}  // namespace spmdx
