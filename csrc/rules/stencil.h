// SPDX-License-Identifier: Apache-2.0
// Stencils: ops whose points each read a window of a field, or whose field each point is spread over. A convolution's
// result is points, its input the field; of a transposed one it is the other way round.
#pragma once
#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace spmdx {

// What a tensor of such an op is.
enum class Side : char {
  none = '-',     // it has no spatial dims (a weight)
  field = 'f',    // it has a row for every place that windows lie on
  points = 'p',   // it has a row for every window
  indices = 'i',  // points, whose values number the elements of the field
  shape = 's'     // field, of which only the shape counts
};
inline bool on_points(Side side) { return side == Side::points || side == Side::indices; }
inline bool on_field(Side side) { return side == Side::field || side == Side::shape; }

enum class StencilKind : uint8_t {
  convolution,  // windows of one size at a stride; the field goes on with zeros
  pooling,      // the same; what lies outside of the field does not count
  adaptive,     // windows share the field out
  taps          // a point is a weighted sum of a few rows (interpolation, padding)
};

// Arguments that hold the attributes; −1 where an op lacks one.
struct StencilArgs {
  int kernel = -1, stride = -1, padding = -1, dilation = -1, ceil = -1, size = -1, output_padding = -1;
  int transposed = -1;
  int weight = -1;  // an operand
};

// An op as a stencil.
struct Stencil {
  StencilKind kind;
  std::string_view operands, results;  // a Side each
  StencilArgs args = {};
  const Stencil* transposed = nullptr;  // the same with input and result in each other's places

  Side operand(size_t i) const { return i < operands.size() ? static_cast<Side>(operands[i]) : Side::none; }
  Side result(size_t i) const { return i < results.size() ? static_cast<Side>(results[i]) : Side::none; }
  // Each part of a cut dim computes its rows of this side: the results', or the points where all are sums.
  bool owns_points() const;
};

// ---- the stencils there are; `Back`: the gradient ----------------------------------------------------------------

inline constexpr Stencil kTaps{StencilKind::taps, "f", "p"}, kTapsBack{StencilKind::taps, "p", "f"},
    kPaddingBack{StencilKind::taps, "ps", "f"};
inline constexpr Stencil kAdaptive{StencilKind::adaptive, "f", "p", {.size = 1}},
    kAdaptiveBack{StencilKind::adaptive, "ps", "f"}, kAdaptiveMax{StencilKind::adaptive, "f", "pi", {.size = 1}},
    kAdaptiveMaxBack{StencilKind::adaptive, "psi", "f"};
inline constexpr Stencil kAverage{StencilKind::pooling, "f", "p", {1, 2, 3, -1, 4}},
    kAverageBack{StencilKind::pooling, "ps", "f", {2, 3, 4, -1, 5}},
    kMaximum{StencilKind::pooling, "f", "pi", {1, 2, 3, 4, 5}},
    kMaximumBack{StencilKind::pooling, "psi", "f", {2, 3, 4, 5, 6}};
inline constexpr StencilArgs kOfConvolution{-1, 3, 4, 5, -1, -1, 7, 6, 1}, kOfGradients{-1, 4, 5, 6, -1, -1, 8, 7, 2};
inline constexpr Stencil kTransposedConvolution{StencilKind::convolution, "p", "f", kOfConvolution},
    kTransposedConvolutionBack{StencilKind::convolution, "fp", "---", kOfGradients};
inline constexpr Stencil kConvolution{StencilKind::convolution, "f", "p", kOfConvolution, &kTransposedConvolution},
    kConvolutionBack{StencilKind::convolution, "pf", "---", kOfGradients, &kTransposedConvolutionBack};

// Null: of an op that is none.
const Stencil* stencil_of(const Call& call);

// One spatial dim: which rows of the field each point reads.
struct Windows {
  StencilKind kind;
  int64_t field = 1, points = 1;
  int64_t kernel = 1, stride = 1, padding = 0, dilation = 1;
  bool ceil = false;
  std::vector<Range> reads = {};  // of taps: the rows of each point
  bool whole = false;             // may not be cut

  int64_t span() const { return dilation * (kernel - 1) + 1; }
  // Whether parts of the dim can be computed apart.
  bool divisible() const { return field > 1 && points > 1 && !whole; }
  bool identity() const { return kind == StencilKind::convolution && span() == 1 && stride == 1 && padding == 0; }
  // What a point reads, the place where its window begins and ends; not clamped to the field.
  Range window(int64_t point) const;
  Range field_of(const Range& points) const;  // rows that they read, from the first to the last
  Range points_of(const Range& field) const;  // that read any of these rows, from the first to the last
};
Windows windows_of(const Call& call, const Stencil& stencil, size_t spatial);

// How many dims are spatial: the last ones.
size_t spatial_dims(const Call& call);

// What part `index` of `count` needs of the side that the parts do not own.
Range needed(const Windows& windows, bool owns_points, int64_t count, int64_t index);
int64_t needed_extent(const Windows& windows, bool owns_points, int64_t count);  // of the part that needs most

// A part of the problem, which the op itself can do on these rows alone. Rows that are not there are zeros.
struct Patch {
  Range field, points;
  int64_t padding = 0;
  int64_t output_padding = 0;  // of a transposed convolution
};
// Those that together give the rows `own`.
std::vector<Patch> patches_of(const Windows& windows, bool owns_points, const Range& own);

// ---- spmdx.stencil: the op for parts of cut dims ------------------------------------------------------------------
// (op, cut spatial dims, parts of each, first part here, rows of the field, points, …)
enum : size_t { kStencilOp, kStencilDims, kStencilParts, kStencilFirst, kStencilField, kStencilPoints, kStencilArgs };

// The op itself on the whole of the cut dims.
Call stencil_call(const Call& call);

}  // namespace spmdx
