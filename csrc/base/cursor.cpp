// SPDX-License-Identifier: Apache-2.0
// Cursor: reads tokens, words, numbers and strings from one line of text.
#include "base/cursor.h"

#include <algorithm>
#include <cctype>

#include "base/error.h"

namespace spmdx {
namespace {

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.'; }

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
  const std::string_view rest = at_end() ? std::string_view() : line_.substr(pos_);
  const std::string found =
      rest.empty() ? "the end of the line" : "'" + std::string(rest.substr(0, rest.find('\n'))) + "'";
  throw ShardingError("found " + found + ". Expected " + expected + ".");
}

std::string Cursor::word(const char* expected) {
  skip_blanks();
  const size_t start = pos_;
  while (pos_ < line_.size() && is_word(line_[pos_])) ++pos_;
  if (pos_ == start) fail(expected);
  return std::string(line_.substr(start, pos_ - start));
}

std::string_view Cursor::until(std::string_view stops) {
  skip_blanks();
  const size_t start = pos_;
  pos_ = std::min(line_.find_first_of(stops, pos_), line_.size());
  return line_.substr(start, pos_ - start);
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

std::variant<int64_t, double> Cursor::numeric() {
  skip_blanks();
  const std::string_view rest = line_.substr(pos_);
  const std::string_view token = rest.substr(0, rest.find_first_of(" ,)]"));
  if (token.find_first_of(".ein") == token.npos) return number<int64_t>("an argument");
  return number<double>("an argument");
}

}  // namespace spmdx
