// SPDX-License-Identifier: Apache-2.0
// Stencils: reads windows from the arguments of a call, and finds what each part of a cut dim needs and computes.
#include "rules/stencils/stencil.h"

#include <algorithm>

#include "base/error.h"
#include "graph/args.h"
#include "rules/rule/row.h"
#include "rules/stencils/taps.h"

namespace spmdx::rules {
namespace {

int64_t entry(const Call& call, int arg, size_t spatial, int64_t missing) {
  const std::vector<int64_t> list = arg < 0 ? std::vector<int64_t>{} : integers(call, static_cast<size_t>(arg));
  return list.empty() ? missing : list.at(list.size() == 1 ? 0 : spatial);
}

Range between(int64_t start, int64_t stop) { return {start, std::max<int64_t>(stop - start, 0)}; }

Range hull(const std::vector<Tap>& taps) {
  const auto [least, most] =
      std::minmax_element(taps.begin(), taps.end(), [](const Tap& a, const Tap& b) { return a.row < b.row; });
  return between(least->row, most->row + 1);
}

int64_t rows_of_side(const Call& call, const Stencil& stencil, bool points, size_t back) {
  const auto rows = [back](const TensorType& type) { return type.shape.at(type.shape.size() - back); };
  const auto is = [points](Side side) { return points ? on_points(side) : on_field(side); };
  for (size_t i = 0; i < call.inputs.size(); ++i)
    if (is(stencil.operand(i))) return rows(call.inputs[i]);
  for (size_t i = 0; i < call.outputs.size(); ++i)
    if (is(stencil.result(i))) return rows(call.outputs[i]);
  throw InternalError("a stencil without a field or points: " + call.op);
}

}  // namespace

bool Stencil::owns_points() const {
  return std::none_of(results.begin(), results.end(), [](char c) { return on_field(static_cast<Side>(c)); });
}

const Stencil* stencil_of(const Call& call) {
  const Row* row = find_row(call.op);
  const Stencil* stencil = row ? row->stencil : nullptr;
  if (!stencil || !stencil->transposed) return stencil;
  const bool transposed = boolean(call, static_cast<size_t>(stencil->args.transposed), false);
  return transposed ? stencil->transposed : stencil;
}

size_t spatial_dims(const Call& call) {
  const size_t dims = row_of(call).dims;
  return dims ? dims : call.inputs.at(0).shape.size() - 2;
}

Windows windows_of(const Call& call, const Stencil& stencil, size_t spatial) {
  const size_t back = spatial_dims(call) - spatial;
  Windows windows{stencil.kind};
  windows.field = rows_of_side(call, stencil, false, back);
  windows.points = rows_of_side(call, stencil, true, back);
  const StencilArgs& args = stencil.args;
  const bool weighted = stencil.kind == StencilKind::convolution;
  if (weighted) {
    const Shape& weight = call.inputs.at(static_cast<size_t>(args.weight)).shape;
    windows.kernel = weight.at(weight.size() - back);
  } else {
    windows.kernel = entry(call, args.kernel, spatial, 1);
  }
  windows.stride = entry(call, args.stride, spatial, weighted ? 1 : windows.kernel);
  windows.padding = entry(call, args.padding, spatial, 0);
  windows.dilation = entry(call, args.dilation, spatial, 1);
  windows.ceil = args.ceil >= 0 && boolean(call, static_cast<size_t>(args.ceil), false);
  if (stencil.kind == StencilKind::taps) {
    windows.whole = !plain_taps(call);
    for (const std::vector<Tap>& some : taps_of(call, spatial, spatial_dims(call), windows.field, windows.points))
      windows.reads.push_back(hull(some));
  }
  return windows;
}

Range Windows::window(int64_t point) const {
  if (kind == StencilKind::adaptive) {
    const int64_t start = point * field / points;
    return between(start, ((point + 1) * field + points - 1) / points);
  }
  if (kind == StencilKind::taps) return reads.at(static_cast<size_t>(point));
  return {point * stride - padding, span()};
}

Range Windows::field_of(const Range& some) const {
  int64_t start = field, stop = 0;
  for (int64_t p = some.start; p < some.start + some.extent; ++p) {
    const Range reads_here = window(p);
    start = std::min(start, std::max<int64_t>(reads_here.start, 0));
    stop = std::max(stop, std::min(reads_here.start + reads_here.extent, field));
  }
  return start < stop ? between(start, stop) : Range{};
}

Range Windows::points_of(const Range& rows) const {
  if (rows.extent == 0) return {};
  int64_t first = points, stop = 0;
  for (int64_t p = 0; p < points; ++p) {
    const Range reads = window(p);
    if (reads.start >= rows.start + rows.extent || reads.start + reads.extent <= rows.start) continue;
    first = std::min(first, p);
    stop = p + 1;
  }
  return first < stop ? between(first, stop) : Range{};
}

Range needed(const Windows& windows, bool owns_points, int64_t count, int64_t index) {
  return owns_points ? windows.field_of(part_of(windows.points, count, index))
                     : windows.points_of(part_of(windows.field, count, index));
}

namespace {

// ---- convolutions: the rows that are needed, without padding; rows outside of the field are zeros -----------------

Patch convolved(const Windows& windows, const Range& own) {
  return {{own.start * windows.stride - windows.padding, (own.extent - 1) * windows.stride + windows.span()}, own};
}

// Takes points whose windows together cover the rows `own`, from one that begins at or before the first row to one that
// ends at or after the last; where points end before that, output_padding adds rows.
Patch transposed_patch(const Windows& windows, const Range& own) {
  const Range some = windows.points_of(own);
  const int64_t end = own.start + own.extent;
  int64_t first = std::min(floor_div(own.start + windows.padding, windows.stride), windows.points - 1);
  if (some.extent > 0) first = std::min(first, some.start);
  int64_t stop = std::max(first + 1, some.start + some.extent);
  const auto reached = [&] { return (stop - 1) * windows.stride - windows.padding + windows.span(); };
  while (reached() < end && stop < windows.points) ++stop;
  Patch patch{between(first * windows.stride - windows.padding, reached()), between(first, stop)};
  patch.output_padding = std::max<int64_t>(end - reached(), 0);
  patch.field.extent += patch.output_padding;
  return patch;
}

// ---- pooling: away from the border exactly the rows of the windows, at the border with the padding of the call ---

int64_t pooled_size(const Windows& windows, int64_t rows) {
  const int64_t room = rows + 2 * windows.padding - windows.span() + (windows.ceil ? windows.stride - 1 : 0);
  const int64_t count = floor_div(room, windows.stride) + 1;
  return windows.ceil && (count - 1) * windows.stride >= rows + windows.padding ? count - 1 : count;
}

Patch pooled(const Windows& windows, const Range& some, const Range& cover) {
  const int64_t begin = windows.window(some.start).start;
  const Range last = windows.window(some.start + some.extent - 1);
  const int64_t end = last.start + last.extent;
  if (begin >= 0 && end <= windows.field && begin <= cover.start && end >= cover.start + cover.extent)
    return {between(begin, end), some};
  int64_t start = std::min(std::max<int64_t>(begin, 0), cover.start) / windows.stride * windows.stride;
  int64_t stop = std::max(std::min(end, windows.field), cover.start + cover.extent);
  while (start > 0 && stop - start < windows.span()) start -= windows.stride;  // ATen needs rows for one window
  stop = std::max(stop, std::min(start + windows.span(), windows.field));
  return {between(start, stop), {start / windows.stride, pooled_size(windows, stop - start)}, windows.padding};
}

// ---- adaptive pooling: one patch, if ATen divides its rows into the same windows; else one patch per point --------

std::vector<Patch> shared_out(const Windows& windows, const Range& some) {
  const Patch all{windows.field_of(some), some};
  const Windows alone{windows.kind, all.field.extent, some.extent};
  bool same = true;
  for (int64_t p = 0; p < some.extent; ++p) {
    const Range here = alone.window(p), there = windows.window(some.start + p);
    same = same && here.start + all.field.start == there.start && here.extent == there.extent;
  }
  if (same) return {all};
  std::vector<Patch> patches;
  for (int64_t p = some.start; p < some.start + some.extent; ++p) patches.push_back({windows.window(p), {p, 1}});
  return patches;
}

}  // namespace

int64_t needed_extent(const Windows& windows, bool owns_points, int64_t count) {
  int64_t most = 1;
  for (int64_t i = 0; i < count; ++i) most = std::max(most, needed(windows, owns_points, count, i).extent);
  return most;
}

std::vector<Patch> patches_of(const Windows& windows, bool owns_points, const Range& own) {
  if (own.extent == 0) return {};
  if (windows.kind == StencilKind::convolution)
    return {owns_points ? convolved(windows, own) : transposed_patch(windows, own)};
  const Range some = owns_points ? own : windows.points_of(own);
  if (some.extent == 0) return {};
  if (windows.kind == StencilKind::adaptive) return shared_out(windows, some);
  return {pooled(windows, some, owns_points ? windows.field_of(own) : own)};
}

Call stencil_call(const Call& call) {
  Call inner = call;
  inner.op = std::get<std::string>(call.args.at(kStencilOp));
  inner.args.erase(inner.args.begin(), inner.args.begin() + kStencilArgs);
  const Stencil* stencil = stencil_of(inner);
  internal_check(stencil != nullptr, "no stencil: " + inner.op);
  const std::vector<int64_t> dims = integers(call, kStencilDims), field = integers(call, kStencilField),
                             points = integers(call, kStencilPoints);
  const size_t spatial = spatial_dims(inner);
  const auto restore = [&](TensorType& type, Side side) {
    if (side == Side::none || type.dtype == DType::unknown) return;
    for (size_t i = 0; i < dims.size(); ++i)
      type.shape.at(type.shape.size() - spatial + static_cast<size_t>(dims[i])) =
          on_points(side) ? points[i] : field[i];
  };
  for (size_t i = 0; i < inner.inputs.size(); ++i) restore(inner.inputs[i], stencil->operand(i));
  for (size_t i = 0; i < inner.outputs.size(); ++i) restore(inner.outputs[i], stencil->result(i));
  return inner;
}

}  // namespace spmdx::rules
