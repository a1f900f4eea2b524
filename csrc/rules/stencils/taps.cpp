// SPDX-License-Identifier: Apache-2.0
// Taps: computes rows and weights as PyTorch does, by mode and scale of the op.
#include "rules/stencils/taps.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "graph/args.h"

namespace spmdx::rules {
namespace {

enum class Mode : uint8_t { nearest, nearest_exact, linear, cubic, reflect, replicate };

struct Kind {
  Mode mode;
  bool backward;
  bool has_align() const { return mode == Mode::linear || mode == Mode::cubic; }
  bool pads() const { return mode == Mode::reflect || mode == Mode::replicate; }
};

Kind kind_of(const Call& call) {
  constexpr std::pair<std::string_view, Mode> modes[] = {
      {"aten._upsample_nearest_exact", Mode::nearest_exact},
      {"aten.reflection_pad", Mode::reflect},
      {"aten.replication_pad", Mode::replicate},
      {"aten.upsample_bicubic", Mode::cubic},
      {"aten.upsample_bilinear", Mode::linear},
      {"aten.upsample_linear", Mode::linear},
      {"aten.upsample_nearest", Mode::nearest},
      {"aten.upsample_trilinear", Mode::linear},
  };
  const std::string_view op = base_name(call.op);
  for (const auto& [prefix, mode] : modes)
    if (op.starts_with(prefix)) return {mode, op.ends_with("_backward")};
  throw InternalError("an op without taps: " + call.op);
}

// ---- interpolation: (x, output_size, [align_corners], scales…), backward (grad, output_size, input_size, …) --------

size_t scale_arg(const Kind& kind, size_t spatial) { return 2 + kind.backward + kind.has_align() + spatial; }

bool aligned(const Call& call, const Kind& kind) { return kind.has_align() && boolean(call, 2 + kind.backward, false); }

template <class Real>
Real scale_of(const Call& call, const Kind& kind, size_t spatial, int64_t field, int64_t points) {
  if (aligned(call, kind))
    return points > 1 ? static_cast<Real>(field - 1) / static_cast<Real>(points - 1) : static_cast<Real>(0);
  const auto* given = std::get_if<double>(&argument(call, scale_arg(kind, spatial)));
  if (given && *given > 0) return static_cast<Real>(1.0 / *given);
  return static_cast<Real>(field) / static_cast<Real>(points);
}

template <class Real>
int64_t nearest_row(const Kind& kind, Real scale, int64_t point, int64_t field) {
  const Real half = kind.mode == Mode::nearest_exact ? static_cast<Real>(0.5) : static_cast<Real>(0);
  const Real place = kind.backward || half == 0
                         ? (static_cast<Real>(point) + half) * scale
                         : std::max(scale * (static_cast<Real>(point) + half) - half, static_cast<Real>(0)) + half;
  return std::min(static_cast<int64_t>(std::floor(place)), field - 1);
}

template <class Real>
std::vector<Tap> linear_taps(Real place, int64_t field) {
  place = std::max(place, static_cast<Real>(0));
  const int64_t row = std::min(static_cast<int64_t>(std::floor(place)), field - 1);
  const Real rest = std::clamp(place - static_cast<Real>(row), static_cast<Real>(0), static_cast<Real>(1));
  return {{row, static_cast<double>(1 - rest)}, {row + (row < field - 1), static_cast<double>(rest)}};
}

template <class Real>
std::vector<Tap> cubic_taps(Real place, int64_t field) {
  const Real a = static_cast<Real>(-0.75);
  const auto near = [a](Real x) { return ((a + 2) * x - (a + 3)) * x * x + 1; };
  const auto far = [a](Real x) { return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a; };
  const int64_t row = std::min(static_cast<int64_t>(std::floor(place)), field - 1);
  const Real t = std::clamp(place - static_cast<Real>(row), static_cast<Real>(0), static_cast<Real>(1));
  const Real weights[] = {far(t + 1), near(t), near(1 - t), far(2 - t)};
  std::vector<Tap> taps;
  for (int64_t i = 0; i < 4; ++i)
    taps.push_back({std::clamp<int64_t>(row - 1 + i, 0, field - 1), static_cast<double>(weights[i])});
  return taps;
}

template <class Real>
Taps interpolated(const Call& call, const Kind& kind, size_t spatial, int64_t field, int64_t points) {
  const Real scale = scale_of<Real>(call, kind, spatial, field, points);
  const bool align = aligned(call, kind);
  Taps taps;
  for (int64_t p = 0; p < points; ++p) {
    const Real half = static_cast<Real>(0.5), at = static_cast<Real>(p);
    const Real place = align ? scale * at : scale * (at + half) - half;
    if (kind.mode == Mode::linear)
      taps.push_back(field == points ? std::vector<Tap>{{p, 1}, {p, 0}} : linear_taps(place, field));
    else if (kind.mode == Mode::cubic)
      taps.push_back(cubic_taps(place, field));
    else
      taps.push_back({{nearest_row(kind, scale, p, field), 1}});
  }
  return taps;
}

// ---- padding: (x, widths from the last dim on), backward (grad, x, widths) ------------------------------------------

size_t widths_arg(const Kind& kind) { return 1 + kind.backward; }

Taps padded(const Call& call, const Kind& kind, size_t back, int64_t field, int64_t points) {
  const int64_t before = integers(call, widths_arg(kind)).at(2 * (back - 1));
  Taps taps;
  for (int64_t p = 0; p < points; ++p) {
    int64_t row = p - before;
    if (kind.mode == Mode::replicate) row = std::clamp<int64_t>(row, 0, field - 1);
    if (row < 0) row = -row;
    if (row >= field) row = 2 * (field - 1) - row;
    taps.push_back({{row, 1}});
  }
  return taps;
}

}  // namespace

Taps taps_of(const Call& call, size_t spatial, size_t spatial_dims, int64_t field, int64_t points) {
  const Kind kind = kind_of(call);
  if (kind.pads()) return padded(call, kind, spatial_dims - spatial, field, points);
  const bool nearest = !kind.has_align();
  const bool in_double = call.inputs.at(0).dtype == DType::f64 && !(nearest && kind.backward);
  return in_double ? interpolated<double>(call, kind, spatial, field, points)
                   : interpolated<float>(call, kind, spatial, field, points);
}

bool plain_taps(const Call& call) { return !kind_of(call).has_align() || is_floating(call.inputs.at(0).dtype); }

void leave_dim(Call& call, size_t spatial, size_t spatial_dims, int64_t rows) {
  const Kind kind = kind_of(call);
  if (kind.pads()) {
    auto& widths = std::get<std::vector<int64_t>>(call.args.at(widths_arg(kind)));
    widths.at(2 * (spatial_dims - spatial - 1)) = widths.at(2 * (spatial_dims - spatial) - 1) = 0;
    return;
  }
  std::get<std::vector<int64_t>>(call.args.at(1)).at(spatial) = rows;
  if (scale_arg(kind, spatial) < call.args.size()) call.args[scale_arg(kind, spatial)] = std::monostate{};
  if (kind.backward) call.args.at(2) = call.outputs.at(0).shape;
}

bool reads_by_tap(const Call& call) { return !kind_of(call).backward; }

}  // namespace spmdx::rules
