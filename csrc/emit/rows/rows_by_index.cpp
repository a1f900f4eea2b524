// SPDX-License-Identifier: Apache-2.0
// Rows by index: reads and writes of places that tensors of integers say.
#include <algorithm>
#include <numeric>

#include "emit/rows/site.h"

namespace spmdx::emit {
namespace {

using Dims = std::vector<int64_t>;

// There are such places, which may count from the end.
void require_places(Site& site, const Tensor& index, int64_t size, bool from_the_end) {
  Writer& write = site.write;
  const Tensor whole = write.convert(index, DType::i64);
  const Tensor least = write.constant(whole.type, from_the_end ? -size : int64_t{0});
  const Tensor is_high = write.compare("LT", whole, write.constant(whole.type, size));
  site.require(write.binary("and", write.compare("GE", whole, least), is_high));
}

// Indices that count from the end, counted from the beginning.
Tensor from_the_start(Site& site, const Tensor& index, int64_t size) {
  Writer& write = site.write;
  require_places(site, index, size, true);
  const Tensor whole = write.convert(index, DType::i64);
  const Tensor moved = write.binary("add", whole, write.like(whole, static_cast<double>(size)));
  return write.select(write.compare("LT", whole, write.like(whole, 0)), moved, whole);
}

// Coordinates side by side, as a new last dim.
Tensor together(Writer& write, const std::vector<Tensor>& coordinates) {
  std::vector<Tensor> columns;
  Shape shape = coordinates.at(0).type.shape;
  shape.push_back(1);
  for (const Tensor& one : coordinates) columns.push_back(write.reshape(one, shape));
  return write.concatenate(columns, static_cast<int64_t>(shape.size()) - 1);
}

Dims counted(int64_t from, int64_t to) {
  Dims dims(to - from);
  std::iota(dims.begin(), dims.end(), from);
  return dims;
}

// Of a tensor whose first dims are indexed: the places, then its other dims.
Tensor read(Writer& write, const Tensor& a, const std::vector<Tensor>& at) {
  const auto indexed = static_cast<int64_t>(at.size()), rank = static_cast<int64_t>(a.type.shape.size());
  const auto places = static_cast<int64_t>(at[0].type.shape.size());
  Shape shape = at[0].type.shape, sizes(indexed, 1);
  shape.insert(shape.end(), a.type.shape.begin() + indexed, a.type.shape.end());
  sizes.insert(sizes.end(), a.type.shape.begin() + indexed, a.type.shape.end());
  return write.op(
      "gather", {a, together(write, at)}, {a.type.dtype, shape},
      "dimension_numbers = #stablehlo.gather<offset_dims = " + mlir_list(counted(places, places + rank - indexed)) +
          ", collapsed_slice_dims = " + mlir_list(counted(0, indexed)) +
          ", start_index_map = " + mlir_list(counted(0, indexed)) + ", index_vector_dim = " + std::to_string(places) +
          ">, slice_sizes = " + mlir_array(sizes) + ", indices_are_sorted = false");
}

// The same, written: `given` has the places, then the other dims. Region: how what is there and what comes make one.
// Places that are none are moved to the nearest one, as reads move them: IREE would write outside of the tensor, before
// anybody sees that it was required that there are such places.
Tensor written(Writer& write, const Tensor& a, const std::vector<Tensor>& told, const Tensor& given,
               const std::string& region) {
  std::vector<Tensor> at;
  for (size_t d = 0; d < told.size(); ++d) at.push_back(write.within(told[d], 0, a.type.shape[d] - 1));
  const auto indexed = static_cast<int64_t>(at.size()), rank = static_cast<int64_t>(a.type.shape.size());
  const auto places = static_cast<int64_t>(at[0].type.shape.size());
  return write.op("scatter", {a, together(write, at), given}, a.type,
                  "scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = " +
                      mlir_list(counted(places, places + rank - indexed)) +
                      ", inserted_window_dims = " + mlir_list(counted(0, indexed)) +
                      ", scatter_dims_to_operand_dims = " + mlir_list(counted(0, indexed)) + ", index_vector_dim = " +
                      std::to_string(places) + ">, indices_are_sorted = false, unique_indices = false",
                  region);
}

// What aten.index is given: which dims, by what, and how the result lies.
struct Indexing {
  std::vector<Tensor> at;  // all of one shape
  Dims first;              // dims of the tensor, those that are indexed first
  Dims back;               // where dims of the result are among places and other dims
};

Indexing indexing(Site& site, const Tensor& a) {
  Writer& write = site.write;
  std::vector<Tensor> given = site.tensors(1);
  const auto rank = static_cast<int64_t>(a.type.shape.size());
  Dims indexed, others;
  Shape places;
  for (int64_t d = 0; d < rank; ++d) {
    const bool is_one = d < static_cast<int64_t>(given.size()) && !given[d].name.empty();
    (is_one ? indexed : others).push_back(d);
    if (!is_one) continue;
    if (given[d].type.dtype == DType::b8 || given[d].type.dtype == DType::u8)
      refuse(site, "how many places a mask has is known when it runs");
    const Shape& shape = given[d].type.shape;
    if (shape.size() > places.size()) places.insert(places.begin(), shape.size() - places.size(), 1);
    for (size_t i = 0; i < shape.size(); ++i) {
      int64_t& size = places[places.size() - shape.size() + i];
      if (size == 1) size = shape[i];
    }
  }
  Indexing found;
  for (const int64_t d : indexed)
    found.at.push_back(write.broadcast(from_the_start(site, given[d], a.type.shape[d]), places));
  found.first = indexed;
  found.first.insert(found.first.end(), others.begin(), others.end());
  // Neighbours are replaced where they are; else the places come first.
  const bool adjacent =
      !indexed.empty() && indexed.back() - indexed.front() + 1 == static_cast<int64_t>(indexed.size());
  const int64_t before = adjacent ? indexed.front() : 0, count = static_cast<int64_t>(places.size());
  for (int64_t d = 0; d < before; ++d) found.back.push_back(count + d);
  for (int64_t d = 0; d < count; ++d) found.back.push_back(d);
  for (int64_t d = before; d < static_cast<int64_t>(others.size()); ++d) found.back.push_back(count + d);
  return found;
}

Dims inverse(const Dims& dims) {
  Dims found(dims.size());
  for (size_t d = 0; d < dims.size(); ++d) found[dims[d]] = static_cast<int64_t>(d);
  return found;
}

std::vector<Tensor> index(Site& site) {
  Writer& write = site.write;
  const Tensor a = site.tensor(0);
  const Indexing of = indexing(site, a);
  if (of.at.empty()) return {a};
  return {write.transpose(read(write, write.transpose(a, of.first), of.at), of.back)};
}

std::vector<Tensor> index_put(Site& site) {
  Writer& write = site.write;
  const Tensor a = site.tensor(0);
  const Indexing of = indexing(site, a);
  if (of.at.empty()) refuse(site, "no dim is indexed");
  Shape shape = of.at[0].type.shape;
  for (size_t d = of.at.size(); d < of.first.size(); ++d) shape.push_back(a.type.shape[of.first[d]]);
  Shape seen;
  for (const int64_t d : of.back) seen.push_back(shape[d]);
  const Tensor given = write.transpose(write.broadcast(site.tensor(2), seen), inverse(of.back));
  const bool adds = boolean(site.call(), 3, false);
  const std::string region = adds ? Writer::combining("add", a.type.dtype) : Writer::replacing(a.type.dtype);
  return {write.transpose(written(write, write.transpose(a, of.first), of.at, given, region), inverse(of.first))};
}

// The coordinates of elements of an index along one dim, whose other coordinates are its own.
std::vector<Tensor> coordinates(Site& site, const Tensor& index, int64_t dim, const Shape& of) {
  std::vector<Tensor> found;
  if (numel(index.type.shape) == 0) refuse(site, "no place is told");
  require_places(site, index, of[dim], false);
  for (size_t d = 0; d < of.size(); ++d) {
    const bool is_dim = static_cast<int64_t>(d) == dim;
    found.push_back(is_dim ? site.write.convert(index, DType::i64)
                           : site.write.iota({DType::i64, index.type.shape}, static_cast<int64_t>(d)));
  }
  return found;
}

std::vector<Tensor> gathered(Site& site) {
  const Tensor a = site.tensor(0), index = site.tensor(2);
  if (a.type.shape.empty() || index.type.shape.empty()) refuse(site, "a scalar has no dim");
  return {read(site.write, a, coordinates(site, index, site.dim(1, a.type.shape.size()), a.type.shape))};
}

// aten.scatter(self, dim, index, src): `by` is empty where the source replaces what is there.
std::vector<Tensor> scattered_by(Site& site, std::string_view by) {
  Writer& write = site.write;
  const Tensor a = site.tensor(0), index = site.tensor(2);
  if (a.type.shape.empty() || index.type.shape.empty()) refuse(site, "a scalar has no dim");
  Tensor given;
  if (site.has_tensor(3)) {
    given = site.tensor(3);
    const size_t rank = index.type.shape.size();
    if (given.type.shape != index.type.shape)
      given = write.slice(given, Shape(rank, 0), index.type.shape, Shape(rank, 1));
  } else {
    given = site.in(3, {a.type.dtype, index.type.shape});
  }
  const std::string region = by.empty() ? Writer::replacing(a.type.dtype) : Writer::combining(by, a.type.dtype);
  const std::vector<Tensor> at = coordinates(site, index, site.dim(1, a.type.shape.size()), a.type.shape);
  return {written(write, a, at, given, region)};
}

std::vector<Tensor> scattered(Site& site) { return scattered_by(site, ""); }
std::vector<Tensor> added(Site& site) { return scattered_by(site, "add"); }

// Rows of a dim, none of which is counted from the end.
std::vector<Tensor> rows_of(Site& site, const Tensor& a, int64_t dim, const Tensor& index) {
  Writer& write = site.write;
  require_places(site, index, a.type.shape[dim], false);
  Dims first = counted(0, static_cast<int64_t>(a.type.shape.size()));
  std::swap(first[0], first[dim]);
  const Tensor found = read(write, write.transpose(a, first), {write.convert(index, DType::i64)});
  if (dim == 0) return {found};
  return {write.transpose(found, first)};
}

std::vector<Tensor> embedded(Site& site) { return rows_of(site, site.tensor(0), 0, site.tensor(1)); }

std::vector<Tensor> selected(Site& site) {
  const Tensor a = site.tensor(0);
  if (a.type.shape.empty()) refuse(site, "a scalar has no dim");
  const Tensor index = site.write.reshape(site.tensor(2), {numel(site.tensor(2).type.shape)});
  return rows_of(site, a, site.dim(1, a.type.shape.size()), index);
}

}  // namespace

void add_rows_by_index(Table& table) {
  table["aten.index.Tensor"] = table["aten._unsafe_index.Tensor"] = index;
  table["aten.index_put"] = table["aten._unsafe_index_put"] = index_put;
  table["aten.gather"] = gathered;
  table["aten.embedding"] = embedded;
  table["aten.index_select"] = selected;
  table["aten.scatter.src"] = table["aten.scatter.value"] = scattered;
  table["aten.scatter_add"] = added;
}

}  // namespace spmdx::emit
