// SPDX-License-Identifier: Apache-2.0
// Cursor: reads one line of text: tokens, words, numbers and strings. It skips blanks before each of them.
#pragma once
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

namespace spmdx {

class Cursor {
 public:
  explicit Cursor(std::string_view line, size_t position = 0) : line_(line), pos_(position) {}

  bool at_end();                                        // whether nothing is left but a comment
  bool peek(std::string_view token);                    // whether `token` is next; a word counts only as a whole
  bool accept(std::string_view token);                  // as peek; if it is next, moves behind it
  void expect(std::string_view token);                  // moves behind it, or fails
  [[noreturn]] void fail(const std::string& expected);  // throws ShardingError: what is found, and what is expected

  // Each reads what its name says and moves behind it, or fails; `expected` names it in the message.
  std::string word(const char* expected);          // letters, digits, '_' and '.'
  std::string_view until(std::string_view stops);  // all before any of these characters; may be empty
  std::string quoted();                            // a string in double quotes, without its escapes
  std::variant<int64_t, double> numeric();         // a double if it has a point or an exponent, or is inf or nan
  template <class T>
  T number(const char* expected);
  template <class T>
  std::optional<T> number_or_none();  // does not move if there is no number

  std::string_view line() const { return line_; }
  size_t position() const { return pos_; }
  std::string_view since(size_t start) const { return line_.substr(start, pos_ - start); }
  void back_to(size_t position) { pos_ = position; }
  void skip_blanks();

 private:
  template <class T>
  std::errc read_number(T& value);

  std::string_view line_;
  size_t pos_ = 0;
};

template <class T>
std::errc Cursor::read_number(T& value) {
  skip_blanks();
  const auto [end, error] = std::from_chars(line_.data() + pos_, line_.data() + line_.size(), value);
  if (error == std::errc()) pos_ = static_cast<size_t>(end - line_.data());
  return error;
}

template <class T>
T Cursor::number(const char* expected) {
  T value{};
  const std::errc error = read_number(value);
  if (error == std::errc::result_out_of_range) fail("a number that fits");
  if (error != std::errc()) fail(expected);
  return value;
}

template <class T>
std::optional<T> Cursor::number_or_none() {
  T value{};
  if (read_number(value) != std::errc()) return std::nullopt;
  return value;
}

}  // namespace spmdx
