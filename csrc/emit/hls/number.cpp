// SPDX-License-Identifier: Apache-2.0
// Number: its text, and its types of C++.
#include "emit/hls/number.h"

#include <algorithm>
#include <cstdio>

#include "base/error.h"

namespace spmdx::emit::hls {

Number number_named(const std::string& text) {
  if (text == "float") return {};
  Number number{true, 0, 0};
  int end = 0;
  const int found = std::sscanf(text.c_str(), "fixed<%d,%d>%n", &number.width, &number.whole, &end);
  if (found != 2 || end != static_cast<int>(text.size()))
    throw ShardingError("'" + text + "' is no number. Expected float or fixed<W,I>. Write one as fixed<16,6>.");
  if (number.width < 2 || number.width > 32 || number.whole < 1 || number.whole > std::min(16, number.width - 1))
    throw ShardingError("'" + text +
                        "' is no fixed point that is written. Expected 2 to 32 bits, of which 1 to 16 are before the "
                        "point, and one at least after it. Write one as fixed<16,6>.");
  return number;
}

std::string str(const Number& number) {
  if (!number.is_fixed) return "float";
  return "fixed<" + std::to_string(number.width) + "," + std::to_string(number.whole) + ">";
}

Number wide(const Number& number) {
  if (!number.is_fixed) return number;
  return {true, std::min(64, 2 * number.width + 8), 2 * number.whole + 8};
}

std::string number_type(const Number& number) {
  if (!number.is_fixed) return "float";
  return "ap_fixed<" + std::to_string(number.width) + ", " + std::to_string(number.whole) + ", AP_RND, AP_SAT>";
}

std::string wide_type(const Number& number) {
  if (!number.is_fixed) return "float";
  const Number held = wide(number);
  return "ap_fixed<" + std::to_string(held.width) + ", " + std::to_string(held.whole) + ">";
}

}  // namespace spmdx::emit::hls
