// SPDX-License-Identifier: Apache-2.0
// Rules of products: of groups of rows, and those that add a bias, whose contracted dim is composite, because the bias
// must be added once.
#include <algorithm>

#include "rules/families.h"
#include "rules/stencil.h"

namespace spmdx {
namespace {

// self broadcasts to the result, so it has the result's last letters. What scales the parts of a sum is recorded as a
// real number, so integers are summed whole.
OpRule with_self(const Call& call, std::string a, const std::string& b, const std::string& out) {
  if (!is_floating(call.outputs[0].dtype)) std::replace(a.begin(), a.end(), '+', '!');
  const size_t rank = call.inputs[0].shape.size();
  return from_letters(call, {{out.substr(out.size() - std::min(rank, out.size())), a, b}, {out}});
}

}  // namespace

OpRule addmm(const Call& call) { return with_self(call, "mk+", "kn", "mn"); }
OpRule baddbmm(const Call& call) { return with_self(call, "bmk+", "bkn", "bmn"); }
OpRule addmv(const Call& call) { return with_self(call, "mk+", "k", "m"); }
OpRule addr(const Call& call) { return with_self(call, "m", "n", "mn"); }

namespace {

// The letters of the spatial dims of a convolution's input and of its result. Cut alike, parts exchange halos, or
// nothing where a window is one place.
struct Spatial {
  std::string input, result;
};
Spatial spatial_letters(const Call& call) {
  const Stencil stencil = *stencil_of(call);
  Spatial letters;
  for (size_t i = 0; i < spatial_dims(call); ++i) {
    const char in = static_cast<char>('p' + static_cast<char>(i)), out = static_cast<char>('v' + static_cast<char>(i));
    const Windows windows = windows_of(call, stencil, i);
    const bool apart = windows.identity() || windows.divisible();
    const std::string shared = std::string{in} + (windows.identity() ? "" : "~");
    letters.input += apart ? shared : std::string{in, '!'};
    letters.result += apart ? shared : std::string{out, '!'};
  }
  return letters;
}

}  // namespace

// convolution(x, w, bias, stride, padding, dilation, transposed, output_padding, groups)
OpRule convolution(const Call& call) {
  const size_t spatial = call.inputs[0].shape.size() - 2;
  const bool transposed = boolean(call, 6, false), bias = operand(call, 2) >= 0;
  const bool grouped = integer(call, 8, 1) != 1;
  const std::string in = grouped ? "I!" : bias ? "c+" : "c", out = grouped ? "O!" : "o";
  // With groups one of the weight's dims counts channels of a group only.
  const std::string weight = grouped ? (transposed ? "I!P!" : "O!P!") : (transposed ? "co" : "oc");
  const Spatial places = spatial_letters(call);
  Letters letters{{"n" + in + places.input, weight + dims(spatial, 's', '!')}, {"n" + out + places.result}};
  if (bias) letters.inputs.push_back(out);
  OpRule rule = from_letters(call, letters);
  if (!bias) rule.linearity = Linearity::each;
  rule.flops_per_element = 2;
  return rule;
}

// convolution_backward(grad, x, w, bias_sizes, …, transposed 7, output_padding, groups 9, mask) -> dx, dw, db
OpRule convolution_backward(const Call& call) {
  const size_t spatial = call.inputs[0].shape.size() - 2;
  const bool transposed = boolean(call, 7, false), grouped = integer(call, 9, 1) != 1;
  // The bias's gradient knows no input channels: where those are cut, it is made by itself.
  const std::string in = grouped ? "I!" : produced(call.outputs[2]) ? "c^" : "c.", out = grouped ? "O!" : "o";
  const std::string weight =
      (grouped ? (transposed ? "I!P!" : "O!P!") : (transposed ? "co" : "oc")) + dims(spatial, 's', '!');
  const Spatial places = spatial_letters(call);
  const std::string x = "n" + in + places.input;
  return from_letters(call, {{"n" + out + places.result, x, weight}, {x, weight, out}});
}

}  // namespace spmdx
