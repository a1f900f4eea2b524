// SPDX-License-Identifier: Apache-2.0
// The notation of sharded types, printed and parsed: f32[64@data, 128@(model,seq)]{partial sum: expert} on pipe=1.
#include "sharding/notation.h"

#include "base/error.h"

namespace spmdx {
namespace {

std::string join(const std::vector<std::string>& parts) {
  std::string out;
  for (const std::string& part : parts) out += (out.empty() ? "" : ",") + part;
  return out;
}

std::string dim_suffix(const Mesh& mesh, const DimSharding& dim) {
  if (dim.empty()) return "";
  const std::vector<std::string> names = axis_names(mesh, dim.sub_axes);
  std::string out = names.size() == 1 ? "@" + names[0] : "@(" + join(names) + ")";
  if (dim.tile != 1) out += "/" + std::to_string(dim.tile);
  return out;
}

class Parser {
 public:
  Parser(Cursor& cursor, const MeshRef& mesh) : cursor_(cursor), mesh_(mesh) {}

  std::pair<TensorType, ShardingRef> parse() {
    TensorType type;
    const size_t start = cursor_.position();
    const std::string_view dtype = cursor_.until("[");
    const std::optional<DType> parsed = parse_dtype(dtype);
    if (!parsed) {
      cursor_.back_to(start);
      fail("'" + std::string(dtype) + "' is not a dtype", "a type like f32[64, 128]");
    }
    type.dtype = *parsed;
    expect("[");
    while (!cursor_.accept("]")) {
      if (!type.shape.empty()) expect(",");
      type.shape.push_back(number("the size of a dim"));
      dims_.push_back(cursor_.accept("@") ? dim() : DimSharding{});
    }
    if (cursor_.line().substr(cursor_.position()).starts_with("{")) {  // no blank before it
      expect("{");
      partial();
    }
    const size_t end = cursor_.position();
    if (mesh_ && cursor_.accept("on"))
      place_ = parse_place(cursor_, *mesh_);
    else
      cursor_.back_to(end);
    if (!sharded_ && place_.plain()) return {type, nullptr};
    return {type, finish(type.shape)};
  }

 private:
  [[noreturn]] void fail(const std::string& what, const std::string& expected) const {
    throw ShardingError(what + " at column " + std::to_string(cursor_.position() + 1) + " of '" +
                        std::string(cursor_.line()) + "'. Expected " + expected +
                        ". Write types as f32[64@data, 128@(model,seq)/4, 7]{partial sum: expert}.");
  }
  void expect(const char* token) {
    if (!cursor_.accept(token)) fail("something else", std::string("'") + token + "'");
  }
  int64_t number(const std::string& what) {
    cursor_.skip_blanks();
    const size_t start = cursor_.position();
    const auto value = cursor_.number_or_none<int64_t>();
    if (value && *value >= 0) return *value;
    cursor_.back_to(start);
    fail("no number", what);
  }

  void add_axis(SubAxisList& sub_axes) {
    cursor_.skip_blanks();
    const size_t start = cursor_.position();
    cursor_.until(",)]}/:( ");
    if (cursor_.line().substr(cursor_.position()).starts_with(":")) {  // a part: name:(pre)size
      expect(":");
      expect("(");
      number("the pre-size of a part of an axis");
      expect(")");
      number("the size of a part of an axis");
    }
    if (mesh_ == nullptr) fail("an axis in a type without a mesh", "a type without axes, or a mesh");
    for (SubAxisId sub_axis : parse_axis(*mesh_, cursor_.since(start))) {
      if (seen_ >> sub_axis & 1) fail("an axis used twice", "every axis at most once");
      seen_ |= SubAxisSet{1} << sub_axis;
      sub_axes.push_back(sub_axis);
    }
    sharded_ = true;
  }
  DimSharding dim() {
    DimSharding dim;
    if (cursor_.accept("(")) {
      do add_axis(dim.sub_axes);
      while (cursor_.accept(","));
      expect(")");
    } else {
      add_axis(dim.sub_axes);
    }
    if (cursor_.accept("/")) dim.tile = number("a tile");
    if (dim.tile < 1) fail("a tile of 0", "a tile of at least 1");
    return dim;
  }
  void partial() {
    const std::string_view word = cursor_.until(" }");
    if (word != "partial") fail("'" + std::string(word) + "'", "'partial'");
    const std::string_view kind = cursor_.until(":}");
    const std::optional<Reduction> reduction = parse_reduction(kind);
    if (!reduction || *reduction == Reduction::none)
      fail("'" + std::string(kind) + "' is not a reduction", "sum, max, min, prod, any or all");
    expect(":");
    SubAxisList sub_axes;
    do add_axis(sub_axes);
    while (cursor_.accept(","));
    expect("}");
    partial_ = sub_axis_set(sub_axes);
    if (partial_ != 0) reduction_ = *reduction;
  }
  ShardingRef finish(const Shape& shape) const {
    for (size_t i = 0; i < shape.size(); ++i)
      if (!is_legal(*mesh_, dims_[i], shape[i]))
        fail("dim " + std::to_string(i) + " is cut by a part of an axis that does not divide it",
             "whole axes, or parts that divide evenly");
    if (!place_.whole() && (seen_ & sub_axis_set(mesh_->sub_axes_of_axis(place_.axis))))
      fail("the axis of the place cuts a dim", "a stage axis that cuts no dim");
    return intern({mesh_, dims_, partial_, reduction_, place_}, shape);
  }

  Cursor& cursor_;
  const MeshRef& mesh_;
  std::vector<DimSharding> dims_;
  SubAxisSet seen_ = 0, partial_ = 0;
  Reduction reduction_ = Reduction::none;
  Place place_;
  bool sharded_ = false;
};

}  // namespace

std::string str(const TensorType& type, const ShardingRef& sharding) {
  if (sharding == nullptr) return str(type);
  internal_check(sharding->dims.size() == type.shape.size(), "a sharding whose rank is not that of the value");
  const Mesh& mesh = *sharding->mesh;
  std::string out = std::string(name(type.dtype)) + "[";
  for (size_t i = 0; i < type.shape.size(); ++i)
    out += (i ? ", " : "") + std::to_string(type.shape[i]) + dim_suffix(mesh, sharding->dims[i]);
  out += "]";
  if (sharding->partial != 0)
    out += "{partial " + std::string(name(sharding->reduction)) + ": " +
           join(axis_names(mesh, sub_axis_list(sharding->partial))) + "}";
  return sharding->place.plain() ? out : out + " on " + str(mesh, sharding->place);
}

std::pair<TensorType, ShardingRef> parse_type(Cursor& cursor, const MeshRef& mesh) {
  return Parser(cursor, mesh).parse();
}

std::pair<TensorType, ShardingRef> parse_type(std::string_view text, size_t& pos, const MeshRef& mesh) {
  Cursor cursor(text, pos);
  auto parsed = parse_type(cursor, mesh);
  pos = cursor.position();
  return parsed;
}

}  // namespace spmdx
