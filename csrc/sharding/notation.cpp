// SPDX-License-Identifier: Apache-2.0
// The notation of sharded types, printed and parsed: f32[64@data, 128@(model,seq)]{partial sum: expert}.
#include <charconv>

#include "base/error.h"
#include "sharding/cuts.h"

namespace spmdx {
namespace {

std::string join(const std::vector<std::string>& parts) {
  std::string out;
  for (const std::string& part : parts) out += (out.empty() ? "" : ",") + part;
  return out;
}

std::string dim_suffix(const Mesh& mesh, const DimSharding& dim) {
  if (dim.empty()) return "";
  const std::vector<std::string> names = axis_names(mesh, dim.atoms);
  std::string out = names.size() == 1 ? "@" + names[0] : "@(" + join(names) + ")";
  if (dim.granule != 1) out += "/" + std::to_string(dim.granule);
  return out;
}

class Parser {
 public:
  Parser(std::string_view text, size_t& pos, const MeshRef& mesh) : text_(text), pos_(pos), mesh_(mesh) {}

  std::pair<TensorType, ShardingRef> parse() {
    TensorType type;
    const size_t start = pos_;
    const std::string_view dtype = take_until("[");
    const std::optional<DType> parsed = parse_dtype(dtype);
    if (!parsed) {
      pos_ = start;
      fail("'" + std::string(dtype) + "' is not a dtype", "a type like f32[64, 128]");
    }
    type.dtype = *parsed;
    expect('[');
    while (!accept(']')) {
      if (!type.shape.empty()) expect(',');
      type.shape.push_back(number("the size of a dim"));
      dims_.push_back(accept('@') ? dim() : DimSharding{});
    }
    if (pos_ < text_.size() && text_[pos_] == '{') ++pos_, partial();
    if (!sharded_) return {type, nullptr};
    return {type, finish(type.shape)};
  }

 private:
  [[noreturn]] void fail(const std::string& what, const std::string& expected) const {
    throw ShardingError(what + " at column " + std::to_string(pos_ + 1) + " of '" + std::string(text_) +
                        "'. Expected " + expected + ". Write types as f32[64@data, 128@(model,seq)/4, 7]" +
                        "{partial sum: expert}.");
  }
  void skip_space() {
    while (pos_ < text_.size() && text_[pos_] == ' ') ++pos_;
  }
  bool accept(char c) {
    skip_space();
    if (pos_ >= text_.size() || text_[pos_] != c) return false;
    ++pos_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail("something else", std::string("'") + c + "'");
  }
  std::string_view take_until(std::string_view stops) {
    skip_space();
    const size_t start = pos_;
    while (pos_ < text_.size() && stops.find(text_[pos_]) == stops.npos) ++pos_;
    return text_.substr(start, pos_ - start);
  }
  int64_t number(const std::string& what) {
    skip_space();
    int64_t value = 0;
    const char* begin = text_.data() + pos_;
    const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), value);
    if (error != std::errc{} || value < 0) fail("no number", what);
    pos_ += static_cast<size_t>(end - begin);
    return value;
  }

  void add_axis(std::vector<AtomId>& atoms) {
    skip_space();
    const size_t start = pos_;
    take_until(",)]}/:( ");
    if (pos_ < text_.size() && text_[pos_] == ':') {  // a part: name:(pre)size
      ++pos_;
      expect('(');
      number("the pre-size of a part of an axis");
      expect(')');
      number("the size of a part of an axis");
    }
    if (mesh_ == nullptr) fail("an axis in a type without a mesh", "a type without axes, or a mesh");
    for (AtomId atom : parse_axis(*mesh_, text_.substr(start, pos_ - start))) {
      if (seen_ >> atom & 1) fail("an axis used twice", "every axis at most once");
      seen_ |= AtomSet{1} << atom;
      atoms.push_back(atom);
    }
    sharded_ = true;
  }
  DimSharding dim() {
    DimSharding dim;
    if (accept('(')) {
      do add_axis(dim.atoms);
      while (accept(','));
      expect(')');
    } else {
      add_axis(dim.atoms);
    }
    if (accept('/')) dim.granule = number("a granule");
    if (dim.granule < 1) fail("a granule of 0", "a granule of at least 1");
    return dim;
  }
  void partial() {
    const std::string_view word = take_until(" }");
    if (word != "partial") fail("'" + std::string(word) + "'", "'partial'");
    const std::string_view kind = take_until(":}");
    const std::optional<Reduction> reduction = parse_reduction(kind);
    if (!reduction || *reduction == Reduction::none)
      fail("'" + std::string(kind) + "' is not a reduction", "sum, max, min, prod, any or all");
    expect(':');
    std::vector<AtomId> atoms;
    do add_axis(atoms);
    while (accept(','));
    expect('}');
    partial_ = atom_set(atoms);
    if (partial_ != 0) reduction_ = *reduction;
  }
  ShardingRef finish(const Shape& shape) const {
    for (size_t i = 0; i < shape.size(); ++i)
      if (!is_legal(*mesh_, dims_[i], shape[i]))
        fail("dim " + std::to_string(i) + " is cut by a part of an axis that does not divide it",
             "whole axes, or parts that divide evenly");
    return intern({mesh_, dims_, partial_, reduction_}, shape);
  }

  const std::string_view text_;
  size_t& pos_;
  const MeshRef& mesh_;
  std::vector<DimSharding> dims_;
  AtomSet seen_ = 0, partial_ = 0;
  Reduction reduction_ = Reduction::none;
  bool sharded_ = false;
};

}  // namespace

std::string str(const TensorType& type, ShardingRef sharding) {
  if (sharding == nullptr) return str(type);
  internal_check(sharding->dims.size() == type.shape.size(), "a sharding whose rank is not that of the value");
  const Mesh& mesh = *sharding->mesh;
  std::string out = std::string(name(type.dtype)) + "[";
  for (size_t i = 0; i < type.shape.size(); ++i)
    out += (i ? ", " : "") + std::to_string(type.shape[i]) + dim_suffix(mesh, sharding->dims[i]);
  out += "]";
  if (sharding->partial == 0) return out;
  return out + "{partial " + std::string(name(sharding->reduction)) + ": " +
         join(axis_names(mesh, atom_list(sharding->partial))) + "}";
}

std::pair<TensorType, ShardingRef> parse_type(std::string_view text, size_t& pos, const MeshRef& mesh) {
  return Parser(text, pos, mesh).parse();
}

}  // namespace spmdx
