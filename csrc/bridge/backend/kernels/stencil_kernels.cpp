// SPDX-License-Identifier: Apache-2.0
// Kernels of stencils on parts of a dim: take the rows that a part needs of others, and run the ATen op on them.
#include <ATen/Functions.h>

#include "bridge/backend/aten_kernel.h"
#include "bridge/backend/aten_names.h"
#include "bridge/backend/buffer.h"
#include "bridge/backend/kernels/tap_kernels.h"
#include "bridge/backend/own_kernels.h"
#include "bridge/backend/shard_device.h"
#include "graph/args.h"
#include "graph/rows.h"
#include "rules/stencils/stencil.h"

namespace spmdx::bridge {
namespace {

using Ints = std::vector<int64_t>;

// ---- halos ---------------------------------------------------------------------------------------------------------

// Takes rows [starts[i], starts[i] + lengths[i]) for each part i, and puts the parts one after the other, each padded
// with zeros to the length of the longest.
Compute prepare_halo(const Call& call) {
  return [dim = own_argument<int64_t>(call, kHaloDim), starts = own_argument<Ints>(call, kHaloStarts),
          lengths = own_argument<Ints>(call, kHaloLengths), shape = call.outputs.at(0).shape](
             std::span<const BufferRef> inputs, std::span<const Param>) -> std::vector<at::Tensor> {
    const at::Tensor& x = tensor_of(inputs[0]);
    const int64_t extent = shape.at(static_cast<size_t>(dim)) / static_cast<int64_t>(starts.size());
    if (starts.size() == 1 && lengths[0] == extent) return {x.narrow(dim, starts[0], extent)};
    at::Tensor parts = at::zeros(shape, x.options());
    for (size_t i = 0; i < starts.size(); ++i)
      if (lengths[i] > 0)
        parts.narrow(dim, static_cast<int64_t>(i) * extent, lengths[i]).copy_(x.narrow(dim, starts[i], lengths[i]));
    return {parts};
  };
}

// ---- one part ------------------------------------------------------------------------------------------------------

// One cut dim of one patch (rules/stencils/stencil.h). A part owns rows of one side, points or field, and is lent the
// rows that it needs of the other side.
struct CutRows {
  size_t spatial = 0;
  rules::Patch patch;
  Range owned, lent;                  // the part's rows of the side that it owns, and of the other side
  int64_t owned_at = 0, lent_at = 0;  // where these rows begin in the buffers
  // The rows of a side that the patch needs.
  const Range& wanted(bool points) const { return points ? patch.points : patch.field; }
};

// One patch in all its spatial dims.
struct Job {
  std::vector<CutRows> cuts;
  std::shared_ptr<Kernel> kernel;
};

struct Problem {
  rules::Stencil stencil;
  bool owns_points = false;
  size_t spatial = 0;
  Shape field;                      // sizes of the whole field in its spatial dims
  std::vector<TensorType> outputs;  // local types
  std::vector<Job> jobs;

  int64_t dim(const at::Tensor& tensor, const CutRows& cut) const {
    return tensor.dim() - static_cast<int64_t>(spatial - cut.spatial);
  }
};

// Converts row-major indices of elements: from a box of sizes `from` to a box of sizes `to`, in which the coordinates
// of an element are greater by `shift`.
at::Tensor renumbered(const at::Tensor& indices, const Shape& from, const Shape& to,
                      const std::vector<int64_t>& shift) {
  at::Tensor rest = indices, result = at::zeros_like(indices);
  int64_t stride = 1;
  for (size_t d = from.size(); d-- > 0;) {
    result.add_(rest.remainder(from[d]).add_(shift[d]), stride);
    rest = at::floor_divide(rest, from[d]);
    stride *= to[d];
  }
  return result;
}

// Converts indices into the whole field to indices into the patch (`into_patch`), or the other way round.
at::Tensor moved_indices(const Problem& problem, const Job& job, const at::Tensor& indices, bool into_patch) {
  Shape patch = problem.field;
  std::vector<int64_t> shift(problem.spatial, 0);
  for (const CutRows& cut : job.cuts) {
    patch[cut.spatial] = cut.patch.field.extent;
    shift[cut.spatial] = into_patch ? -cut.patch.field.start : cut.patch.field.start;
  }
  return into_patch ? renumbered(indices, problem.field, patch, shift)
                    : renumbered(indices, patch, problem.field, shift);
}

// The rows of an operand that the patch needs, with zeros where it reaches beyond the rows that are here.
at::Tensor rows_for(const Problem& problem, const Job& job, rules::Side side, at::Tensor tensor) {
  Ints widths(2 * problem.spatial, 0);
  bool reaches_over = false;
  for (const CutRows& cut : job.cuts) {
    const bool owned = rules::on_points(side) == problem.owns_points;
    const Range &here = owned ? cut.owned : cut.lent, &wanted = cut.wanted(rules::on_points(side));
    const Range both = overlap(here, wanted);
    const bool none = both.extent == 0;
    const int64_t before = none ? 0 : both.start - wanted.start, skipped = none ? 0 : both.start - here.start;
    tensor = tensor.narrow(problem.dim(tensor, cut), (owned ? cut.owned_at : cut.lent_at) + skipped, both.extent);
    int64_t* width = &widths[2 * (problem.spatial - 1 - cut.spatial)];
    width[0] = before;
    width[1] = wanted.extent - both.extent - before;
    reaches_over = reaches_over || width[0] || width[1];
  }
  if (side == rules::Side::indices) tensor = moved_indices(problem, job, tensor, true);
  return reaches_over ? at::constant_pad_nd(tensor, widths, 0) : tensor;
}

// A stand-in for an operand of which the op reads the shape only.
at::Tensor only_shape(const Problem& problem, const Job& job, const at::Tensor& tensor) {
  Ints shape = tensor.sizes().vec();
  for (const CutRows& cut : job.cuts) shape[static_cast<size_t>(problem.dim(tensor, cut))] = cut.patch.field.extent;
  return at::zeros({}, tensor.options()).expand(shape);
}

std::vector<at::Tensor> run_job(const Problem& problem, const Job& job, std::span<const BufferRef> inputs,
                                std::span<const Param> params) {
  std::vector<BufferRef> operands(inputs.begin(), inputs.end()), outputs(problem.outputs.size());
  for (size_t i = 0; i < operands.size(); ++i) {
    const rules::Side side = problem.stencil.operand(i);
    if (side == rules::Side::none) continue;
    const at::Tensor& tensor = tensor_of(operands[i]);
    operands[i] =
        buffer_of(side == rules::Side::shape ? only_shape(problem, job, tensor) : rows_for(problem, job, side, tensor));
  }
  job.kernel->run(operands, params, outputs, -1);
  std::vector<at::Tensor> results;
  for (size_t r = 0; r < outputs.size(); ++r) {
    results.push_back(outputs[r] ? tensor_of(outputs[r]) : at::Tensor());
    if (outputs[r] && problem.stencil.result(r) == rules::Side::indices)
      results[r] = moved_indices(problem, job, results[r], false);
  }
  return results;
}

// Adds the rows of `made` that the part owns to their places in `result`. If the first rows are all of the result, they
// become the result without a copy.
void add_rows(const Problem& problem, const Job& job, size_t index, at::Tensor made, at::Tensor& result) {
  const rules::Side side = problem.stencil.result(index);
  const TensorType& type = problem.outputs[index];
  for (const CutRows& cut : job.cuts) {
    if (side == rules::Side::none) break;
    const Range& rows = cut.wanted(rules::on_points(side));
    const Range both = overlap(cut.owned, rows);
    made = made.narrow(problem.dim(made, cut), both.start - rows.start, both.extent);
  }
  if (!result.defined() && made.sizes() == c10::IntArrayRef(type.shape)) {
    result = made;
    return;
  }
  if (!result.defined()) result = at::zeros(type.shape, made.options());
  at::Tensor target = result;
  for (const CutRows& cut : job.cuts) {
    if (side == rules::Side::none) break;
    const Range both = overlap(cut.owned, cut.wanted(rules::on_points(side)));
    target = target.narrow(problem.dim(target, cut), cut.owned_at + both.start - cut.owned.start, both.extent);
  }
  target.add_(made);
}

std::vector<at::Tensor> run_jobs(const Problem& problem, std::span<const BufferRef> inputs,
                                 std::span<const Param> params) {
  std::vector<at::Tensor> results(problem.outputs.size());
  for (const Job& job : problem.jobs) {
    std::vector<at::Tensor> made = run_job(problem, job, inputs, params);
    for (size_t r = 0; r < results.size(); ++r)
      if (made[r].defined()) add_rows(problem, job, r, std::move(made[r]), results[r]);
  }
  for (size_t r = 0; r < results.size(); ++r) {
    const TensorType& type = problem.outputs[r];
    if (type.dtype != DType::unknown && !results[r].defined())
      results[r] = at::zeros(type.shape, on_shard_device(to_scalar_type(type.dtype)));
  }
  return results;
}

// ---- preparation ---------------------------------------------------------------------------------------------------

void set_entry(Call& call, int arg, size_t spatial, size_t count, int64_t value) {
  if (arg < 0) return;
  Ints list = integers(call, static_cast<size_t>(arg));
  if (list.empty()) list = {0};
  if (list.size() == 1) list.assign(count, list[0]);
  list.at(spatial) = value;
  call.args.at(static_cast<size_t>(arg)) = list;
}

// The call of the ATen op on one patch.
Call patch_call(Call call, const Problem& problem, const std::vector<CutRows>& cuts) {
  const auto resize = [&](TensorType& type, rules::Side side, const CutRows& cut) {
    if (side == rules::Side::none || type.dtype == DType::unknown) return;
    type.shape.at(type.shape.size() - problem.spatial + cut.spatial) = cut.wanted(rules::on_points(side)).extent;
  };
  for (const CutRows& cut : cuts) {
    for (size_t i = 0; i < call.inputs.size(); ++i) resize(call.inputs[i], problem.stencil.operand(i), cut);
    for (size_t i = 0; i < call.outputs.size(); ++i) resize(call.outputs[i], problem.stencil.result(i), cut);
    set_entry(call, problem.stencil.args.padding, cut.spatial, problem.spatial, cut.patch.padding);
    set_entry(call, problem.stencil.args.size, cut.spatial, problem.spatial, cut.patch.points.extent);
    set_entry(call, problem.stencil.args.output_padding, cut.spatial, problem.spatial, cut.patch.output_padding);
  }
  return call;
}

// One cut dim of every patch of every part that is here.
std::vector<CutRows> cut_rows(const rules::Windows& windows, bool owns_points, size_t spatial, int64_t parts,
                              int64_t first, int64_t count) {
  const int64_t owned = owns_points ? windows.points : windows.field;
  const int64_t extent = rules::needed_extent(windows, owns_points, parts);
  std::vector<CutRows> rows;
  for (int64_t p = first; p < first + count; ++p) {
    const Range own = part_of(owned, parts, p);
    for (const rules::Patch& patch : rules::patches_of(windows, owns_points, own))
      rows.push_back({spatial, patch, own, rules::needed(windows, owns_points, parts, p),
                      own.start - part_of(owned, parts, first).start, (p - first) * extent});
  }
  return rows;
}

// How many parts are here: the size of an operand of the side that parts do not own, over the room of one part.
int64_t parts_here(const Call& call, const Problem& problem, const rules::Windows& windows, size_t spatial,
                   int64_t parts) {
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const rules::Side side = problem.stencil.operand(i);
    if (side == rules::Side::none || rules::on_points(side) == problem.owns_points) continue;
    const Shape& shape = call.inputs[i].shape;
    return shape.at(shape.size() - problem.spatial + spatial) /
           rules::needed_extent(windows, problem.owns_points, parts);
  }
  throw InternalError("a stencil that needs nothing of other parts: " + call.op);
}

Compute prepare_stencil(const Call& call) {
  const Call inner = rules::stencil_call(call);
  Problem problem;
  problem.stencil = *rules::stencil_of(inner);
  if (problem.stencil.kind == rules::StencilKind::taps) return prepare_taps(call);
  problem.owns_points = problem.stencil.owns_points();
  problem.spatial = rules::spatial_dims(inner);
  problem.outputs = call.outputs;
  for (size_t s = 0; s < problem.spatial; ++s)
    problem.field.push_back(rules::windows_of(inner, problem.stencil, s).field);
  const auto &dims = own_argument<Ints>(call, rules::kStencilDims),
             &parts = own_argument<Ints>(call, rules::kStencilParts),
             &first = own_argument<Ints>(call, rules::kStencilFirst);
  std::vector<std::vector<CutRows>> combinations = {{}};
  for (size_t i = 0; i < dims.size(); ++i) {
    const auto spatial = static_cast<size_t>(dims[i]);
    const rules::Windows windows = rules::windows_of(inner, problem.stencil, spatial);
    const int64_t count = parts_here(call, problem, windows, spatial, parts[i]);
    std::vector<std::vector<CutRows>> extended;
    for (const std::vector<CutRows>& before : combinations)
      for (const CutRows& rows : cut_rows(windows, problem.owns_points, spatial, parts[i], first[i], count)) {
        extended.push_back(before);
        extended.back().push_back(rows);
      }
    combinations = std::move(extended);
  }
  for (std::vector<CutRows>& cuts : combinations) {
    std::shared_ptr<Kernel> kernel = prepare_aten(patch_call(inner, problem, cuts));
    problem.jobs.push_back({std::move(cuts), std::move(kernel)});
  }
  return [problem](std::span<const BufferRef> inputs, std::span<const Param> params) {
    return run_jobs(problem, inputs, params);
  };
}

const OwnKernels stencil_kernels = {{"spmdx.halo", prepare_halo}, {"spmdx.stencil", prepare_stencil}};

}  // namespace
}  // namespace spmdx::bridge
