// SPDX-License-Identifier: Apache-2.0
// The cursor over one line of graph text.
#include "graph/text_cursor.h"

#include <algorithm>
#include <cctype>

#include "base/error.h"

namespace spmdx {
namespace {

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.'; }

// Sizes whose product does not fit would overflow wherever they are multiplied.
void check_numel(const TensorType& type) {
  int64_t bytes = itemsize(type.dtype);
  for (int64_t size : type.shape) {
    if (__builtin_mul_overflow(bytes, std::max<int64_t>(size, 1), &bytes)) {
      throw ShardingError(str(type) + " is too large. Expected at most 2^63 bytes.");
    }
  }
}

}  // namespace

void Cursor::skip_blanks() {
  while (pos_ < line_.size() && std::isspace(static_cast<unsigned char>(line_[pos_]))) ++pos_;
}

bool Cursor::at_end() {
  skip_blanks();
  return pos_ == line_.size() || line_.substr(pos_).starts_with("//");
}

bool Cursor::peek(std::string_view token) {
  skip_blanks();
  const std::string_view rest = line_.substr(pos_);
  if (!rest.starts_with(token)) return false;
  return !is_word(token.back()) || rest.size() == token.size() || !is_word(rest[token.size()]);
}

bool Cursor::accept(std::string_view token) {
  if (!peek(token)) return false;
  pos_ += token.size();
  return true;
}

void Cursor::expect(std::string_view token) {
  if (!accept(token)) fail("'" + std::string(token) + "'");
}

void Cursor::fail(const std::string& expected) {
  const std::string found = at_end() ? "the end of the line" : "'" + std::string(line_.substr(pos_)) + "'";
  throw ShardingError("found " + found + ". Expected " + expected + ".");
}

std::string Cursor::word(const char* expected) {
  skip_blanks();
  const size_t start = pos_;
  while (pos_ < line_.size() && is_word(line_[pos_])) ++pos_;
  if (pos_ == start) fail(expected);
  return std::string(line_.substr(start, pos_ - start));
}

std::string Cursor::axis_name() {
  skip_blanks();
  const size_t start = pos_;
  pos_ = std::min(line_.find_first_of(" ,:=()", pos_), line_.size());
  if (pos_ == start) fail("the name of an axis");
  return std::string(line_.substr(start, pos_ - start));
}

std::string Cursor::quoted() {
  expect("\"");
  std::string out;
  for (; pos_ < line_.size() && line_[pos_] != '"'; ++pos_) {
    const bool escape = line_[pos_] == '\\' && pos_ + 1 < line_.size();
    if (escape) ++pos_;
    out += escape && line_[pos_] == 'n' ? '\n' : line_[pos_];
  }
  expect("\"");
  return out;
}

Arg Cursor::numeric() {
  skip_blanks();
  const std::string_view rest = line_.substr(pos_);
  const std::string_view token = rest.substr(0, rest.find_first_of(" ,)]"));
  if (token.find_first_of(".ein") == token.npos) return number<int64_t>("an argument");
  return number<double>("an argument");
}

std::pair<TensorType, ShardingRef> Cursor::type(const MeshRef& mesh) {
  skip_blanks();
  const size_t start = pos_;
  auto [type, sharding] = parse_type(line_, pos_, mesh);
  check_numel(type);
  // "f32[4] replicated" is decided, "f32[4]" is not, though a sharding may stand for it.
  if (sharding && sharding->replicated()) sharding = nullptr;
  if (accept("replicated")) {
    if (!mesh) throw ShardingError("'replicated' without a mesh. Expected a line like mesh(data=2) at the top.");
    if (sharding) throw ShardingError(std::string(line_.substr(start, pos_ - start)) + " is both cut and replicated.");
    sharding = replicated(mesh, type.shape.size());
  }
  type.wrapped_number = accept("number");
  return {type, sharding};
}

}  // namespace spmdx
