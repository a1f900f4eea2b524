// SPDX-License-Identifier: Apache-2.0
// Stencils: ops between a *field* and *points*, where each point reads a window of the field, or is spread over it.
// The input of a convolution is the field and its result the points; in a transposed convolution it is the reverse.
#pragma once
#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace spmdx::rules {

// What an operand or result of a stencil is.
enum class Side : char {
  none = '-',     // it has no spatial dims (a weight)
  field = 'f',    // its rows are what windows cover
  points = 'p',   // it has one row per window
  indices = 'i',  // like points; its elements are indices of elements of the field (max pooling)
  shape = 's'     // like field, but the op reads its shape only
};
inline bool on_points(Side side) { return side == Side::points || side == Side::indices; }
inline bool on_field(Side side) { return side == Side::field || side == Side::shape; }

enum class StencilKind : uint8_t {
  convolution,  // windows of one size at a stride; outside of the field there are zeros
  pooling,      // windows of one size at a stride; what lies outside of the field does not count
  adaptive,     // the field is divided into as many windows as there are points
  taps          // a point is a weighted sum of a few rows (interpolation, padding), see taps.h
};

// The numbers of the arguments that hold the attributes of windows; −1 where an op has no such argument.
struct StencilArgs {
  int kernel = -1, stride = -1, padding = -1, dilation = -1, ceil = -1, size = -1, output_padding = -1;
  int transposed = -1;
  int weight = -1;  // the operand whose shape gives the kernel
};

// How a stencil reads its arguments, operands and results.
struct Stencil {
  StencilKind kind;
  std::string_view operands, results;  // one Side per tensor
  StencilArgs args = {};
  const Stencil* transposed = nullptr;  // the stencil of a call whose argument `transposed` is true

  Side operand(size_t i) const { return i < operands.size() ? static_cast<Side>(operands[i]) : Side::none; }
  Side result(size_t i) const { return i < results.size() ? static_cast<Side>(results[i]) : Side::none; }
  // Each part of a cut dim owns rows of one side, and needs a halo of the other side. It owns points if no result is a
  // field (results without spatial dims are sums over the points), else rows of the field.
  bool owns_points() const;
};

// ---- all stencils; `Back` stands for the gradient ----------------------------------------------------------------

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

// The stencil of the call, or null if its op is none.
const Stencil* stencil_of(const Call& call);

// The windows along one spatial dim: which rows of the field each point reads.
struct Windows {
  StencilKind kind;
  int64_t field = 1, points = 1;
  int64_t kernel = 1, stride = 1, padding = 0, dilation = 1;
  bool ceil = false;
  std::vector<Range> reads = {};  // of taps: from the first to the last row that each point reads
  bool whole = false;             // the dim may not be cut

  int64_t span() const { return dilation * (kernel - 1) + 1; }  // rows from the first to the last of a window
  // Whether the dim may be computed in parts.
  bool divisible() const { return field > 1 && points > 1 && !whole; }
  // Whether each point reads the one row of the field with its own number.
  bool identity() const { return kind == StencilKind::convolution && span() == 1 && stride == 1 && padding == 0; }
  // The rows of a point's window; it may reach beyond the field.
  Range window(int64_t point) const;
  Range field_of(const Range& points) const;  // the rows that these points read, from the first to the last
  Range points_of(const Range& field) const;  // the points that read any of these rows, from the first to the last
};
// The windows of a call along spatial dim `spatial`, which counts from 0 at the first spatial dim.
Windows windows_of(const Call& call, const Stencil& stencil, size_t spatial);

// How many dims of the call's tensors are spatial. They are the last ones.
size_t spatial_dims(const Call& call);

// The rows that part `index` of `count` parts needs of the side that the parts do not own.
Range needed(const Windows& windows, bool owns_points, int64_t count, int64_t index);
int64_t needed_extent(const Windows& windows, bool owns_points, int64_t count);  // rows of the part that needs most

// One run of the op's kernel on some rows of the field and the points, numbered as in the whole dim. Rows that are not
// there are zeros.
struct Patch {
  Range field, points;
  int64_t padding = 0;         // the argument of that run
  int64_t output_padding = 0;  // the argument of that run, of a transposed convolution
};
// The patches that together give the rows `own`, of the side that parts own. Not of taps.
std::vector<Patch> patches_of(const Windows& windows, bool owns_points, const Range& own);

// ---- spmdx.stencil: runs an op on parts of cut dims ---------------------------------------------------------------
// Its arguments, before those of the op: (op, cut spatial dims, parts of each, first local part of each, rows of the
// field, rows of the points).
enum : size_t { kStencilOp, kStencilDims, kStencilParts, kStencilFirst, kStencilField, kStencilPoints, kStencilArgs };

// The call of the op that a spmdx.stencil runs, with the global sizes of the cut dims.
Call stencil_call(const Call& call);

}  // namespace spmdx::rules
