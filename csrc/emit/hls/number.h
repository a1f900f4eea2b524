// SPDX-License-Identifier: Apache-2.0
// Number: what a design computes in, a float or a fixed point.
#pragma once
#include <string>

namespace spmdx::emit::hls {

// A fixed point has `width` bits, of which `whole` (with the sign) are before the point, as ap_fixed<W, I> has.
struct Number {
  bool is_fixed = false;
  int width = 32, whole = 0;
  int fraction() const { return width - whole; }
};

Number number_named(const std::string& text);  // "float" or "fixed<16,6>". Throws ShardingError.
std::string str(const Number& number);         // the same text
// What sums and products are held in: twice the bits and 8 more, at most 64.
Number wide(const Number& number);
// Types of C++. Numbers are rounded to the nearest and stay at the end of their range; wide ones are cut, and wrap.
std::string number_type(const Number& number);
std::string wide_type(const Number& number);

}  // namespace spmdx::emit::hls
