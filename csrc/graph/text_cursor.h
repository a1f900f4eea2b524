// SPDX-License-Identifier: Apache-2.0
// A cursor over one line of graph text: tokens, numbers, strings and types. Blanks before a token are skipped.
#pragma once
#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "graph/graph.h"

namespace spmdx {

class Cursor {
 public:
  explicit Cursor(std::string_view line) : line_(line) {}

  bool at_end();                      // nothing left but a comment
  bool peek(std::string_view token);  // a word must end where the token ends
  bool accept(std::string_view token);
  void expect(std::string_view token);
  [[noreturn]] void fail(const std::string& expected);  // throws ShardingError saying what is there

  std::string word(const char* expected);  // letters, digits, '_' and '.'
  std::string axis_name();                 // anything but the punctuation of the notation
  std::string quoted();
  Arg numeric();  // an integer; a double where it has a point, an exponent, or is inf or nan
  template <class T>
  T number(const char* expected);
  // A type in the sharding notation; `replicated` after it says that null is not meant, `number` a wrapped number.
  std::pair<TensorType, ShardingRef> type(const MeshRef& mesh);

 private:
  void skip_blanks();

  std::string_view line_;
  size_t pos_ = 0;
};

template <class T>
T Cursor::number(const char* expected) {
  skip_blanks();
  T value{};
  const auto [end, error] = std::from_chars(line_.data() + pos_, line_.data() + line_.size(), value);
  if (error == std::errc::result_out_of_range) fail("a number that fits");
  if (error != std::errc()) fail(expected);
  pos_ = static_cast<size_t>(end - line_.data());
  return value;
}

}  // namespace spmdx
