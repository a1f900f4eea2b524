// SPDX-License-Identifier: Apache-2.0
// Interpolation and padding of parts: cut dims go tap by tap, at their places in the whole dim; ATen does other dims.
#include "bridge/backend/kernels/tap_kernels.h"

#include <ATen/Functions.h>

#include "bridge/backend/aten_kernel.h"
#include "bridge/backend/aten_names.h"
#include "bridge/backend/buffer.h"
#include "bridge/backend/shard_device.h"
#include "rules/build/op_builder.h"
#include "rules/stencils/stencil.h"
#include "rules/stencils/taps.h"

namespace spmdx::bridge {
namespace {

using Ints = std::vector<int64_t>;

// One tap of many points: row from[i] of the operand, times weights[i], is added to row to[i] of the result.
struct Moves {
  Ints from, to;
  std::vector<double> weights;

  void add(int64_t source, int64_t target, double weight) {
    from.push_back(source);
    to.push_back(target);
    weights.push_back(weight);
  }
};

struct TapDim {
  int64_t back = 1;   // counts dims from the end: 1 is the last one
  int64_t rows = 0;   // of the result on this device
  bool reads = true;  // points are made; false: the gradient of the field
  std::vector<Moves> taps;
};

at::Tensor weighted(const at::Tensor& rows, const std::vector<double>& weights, int64_t back) {
  if (std::all_of(weights.begin(), weights.end(), [](double w) { return w == 1; })) return rows;
  Ints shape(static_cast<size_t>(back), 1);
  shape[0] = -1;
  return rows.mul(at::tensor(weights, on_shard_device(at::kDouble)).to(rows.scalar_type()).view(shape));
}

at::Tensor along(const TapDim& dim, const at::Tensor& x) {
  const int64_t at = x.dim() - dim.back;
  at::Tensor result;
  for (const Moves& moves : dim.taps) {
    const at::Tensor rows =
        weighted(x.index_select(at, at::tensor(moves.from, on_shard_device(at::kLong))), moves.weights, dim.back);
    if (dim.reads) {
      result = result.defined() ? result.add_(rows) : rows;
      continue;
    }
    Ints shape = x.sizes().vec();
    shape[static_cast<size_t>(at)] = dim.rows;
    if (!result.defined()) result = at::zeros(shape, x.options());
    result.index_add_(at, at::tensor(moves.to, on_shard_device(at::kLong)), rows);
  }
  return result;
}

// The taps of one spatial dim for the parts [first, first + count).
TapDim tap_dim(const Call& inner, const rules::Stencil& stencil, size_t spatial, int64_t parts, int64_t first,
               int64_t count) {
  const size_t spatials = rules::spatial_dims(inner);
  const rules::Windows windows = rules::windows_of(inner, stencil, spatial);
  const rules::Taps taps = rules::taps_of(inner, spatial, spatials, windows.field, windows.points);
  const bool reads = rules::reads_by_tap(inner);
  const int64_t extent = rules::needed_extent(windows, reads, parts), owned = reads ? windows.points : windows.field;
  const int64_t origin = part_of(owned, parts, first).start;
  TapDim dim{static_cast<int64_t>(spatials - spatial), 0, reads, std::vector<Moves>(taps.at(0).size())};
  for (int64_t i = 0; i < count; ++i) {
    const Range own = part_of(owned, parts, first + i), lent = rules::needed(windows, reads, parts, first + i);
    const int64_t shift = i * extent - lent.start;
    dim.rows += own.extent;
    const Range points = reads ? own : lent;
    for (int64_t p = points.start; p < points.start + points.extent; ++p)
      for (size_t t = 0; t < dim.taps.size(); ++t) {
        const rules::Tap& tap = taps[static_cast<size_t>(p)][t];
        if (reads)
          dim.taps[t].add(tap.row + shift, p - origin, tap.weight);
        else if (tap.row >= own.start && tap.row < own.start + own.extent)
          dim.taps[t].add(p + shift, tap.row - origin, tap.weight);
      }
  }
  return dim;
}

int64_t& rows_of(TensorType& type, const TapDim& dim) { return type.shape.at(type.shape.size() - dim.back); }

// The call of the ATen op for the dims that are not cut, in the dtype of the computation.
Call rest_of(const Call& call, const Call& inner, const std::vector<TapDim>& dims, size_t spatials) {
  Call rest = inner;
  rest.inputs = call.inputs;
  rest.outputs = call.outputs;
  for (TensorType& type : rest.inputs) type.dtype = rules::wide(type.dtype);
  for (TensorType& type : rest.outputs) type.dtype = rules::wide(type.dtype);
  for (const TapDim& dim : dims) {
    rows_of(rest.inputs[0], dim) = dim.rows;
    rules::leave_dim(rest, spatials - static_cast<size_t>(dim.back), spatials, dim.rows);
  }
  return rest;
}

}  // namespace

Compute prepare_taps(const Call& call) {
  const Call inner = rules::stencil_call(call);
  const rules::Stencil stencil = *rules::stencil_of(inner);
  const size_t spatials = rules::spatial_dims(inner);
  const auto &dims = own_argument<Ints>(call, rules::kStencilDims),
             &parts = own_argument<Ints>(call, rules::kStencilParts),
             &first = own_argument<Ints>(call, rules::kStencilFirst);
  std::vector<TapDim> cut;
  for (size_t i = 0; i < dims.size(); ++i) {
    const auto spatial = static_cast<size_t>(dims[i]);
    const rules::Windows windows = rules::windows_of(inner, stencil, spatial);
    const Shape& shape = call.inputs.at(0).shape;
    const int64_t here = shape.at(shape.size() - spatials + spatial);
    const int64_t count = here / rules::needed_extent(windows, stencil.owns_points(), parts[i]);
    cut.push_back(tap_dim(inner, stencil, spatial, parts[i], first[i], count));
  }
  std::shared_ptr<Kernel> rest;
  if (cut.size() < spatials) rest = prepare_aten(rest_of(call, inner, cut, spatials));
  const at::ScalarType dtype = to_scalar_type(call.outputs.at(0).dtype),
                       computed = to_scalar_type(rules::wide(call.outputs[0].dtype));
  return [cut, rest, dtype, computed](std::span<const BufferRef> inputs,
                                      std::span<const Param> params) -> std::vector<at::Tensor> {
    at::Tensor x = tensor_of(inputs[0]).to(computed);
    for (const TapDim& dim : cut) x = along(dim, x);
    if (rest) {
      std::vector<BufferRef> operands(inputs.begin(), inputs.end()), outputs(1);
      operands[0] = buffer_of(x);
      for (size_t i = 1; i < operands.size(); ++i) operands[i] = buffer_of(tensor_of(inputs[i]).to(computed));
      rest->run(operands, params, outputs, -1);
      x = tensor_of(outputs[0]);
    }
    return {x.to(dtype)};
  };
}

}  // namespace spmdx::bridge
