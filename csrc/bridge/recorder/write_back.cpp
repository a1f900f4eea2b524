// SPDX-License-Identifier: Apache-2.0
// Writes through views: what the root becomes, step by step inverse or by element numbers.
#include "bridge/recorder/write_back.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "base/error.h"
#include "bridge/backend/aten_names.h"
#include "bridge/backend/strides.h"
#include "bridge/recorder/recorder.h"
#include "bridge/recorder/values.h"
#include "bridge/tensor/calls.h"
#include "graph/args.h"

namespace spmdx::bridge {
namespace {

bool is_elementwise(const ViewStep& step) {
  return step.call->op == "aten.conj_physical" || step.call->op == "aten.neg" || step.call->op == "aten.view.dtype";
}
bool is_of_pairs(const ViewStep& step) {
  return step.call->op == "aten.view_as_real" || step.call->op == "aten.view_as_complex";
}

ValueId unary(const std::string& op, ValueId x, std::vector<Arg> rest, DType dtype, const Shape& sizes) {
  const TensorType& type = Recorder::instance().type(x);
  return record_call(make_call(op, {type}, std::move(rest), {dtype, sizes, false}), {x});
}

DType real_part(DType complex) { return to_dtype(c10::toRealValueType(to_scalar_type(complex))); }

// Complex numbers as a last dim of two.
ValueId as_pairs(ValueId x) {
  const TensorType type = Recorder::instance().type(x);
  if (!is_complex(type.dtype)) return x;
  Shape sizes = type.shape;
  sizes.push_back(2);
  return unary("aten.view_as_real", x, {}, real_part(type.dtype), sizes);
}

// For each element that the steps show, its number in a whole of this type. With `pairs` the two parts of a complex
// number count as two elements, and a complex number holds the numbers of its parts.
ValueId places(c10::ArrayRef<ViewStep> steps, const TensorType& whole, bool pairs) {
  const bool halves = pairs && is_complex(whole.dtype);
  Shape sizes = whole.shape;
  if (halves) sizes.push_back(2);
  ValueId index = view(iota(numel(sizes)), sizes);
  if (pairs) index = cast(index, DType::f64);
  if (halves) index = unary("aten.view_as_complex", index, {}, DType::c128, whole.shape);
  for (const auto& step : steps) {
    if (is_elementwise(step)) continue;
    Call call = *step.call;
    call.inputs[0].dtype = Recorder::instance().type(index).dtype;
    call.outputs[0].dtype = !is_of_pairs(step)                  ? call.inputs[0].dtype
                            : is_complex(call.outputs[0].dtype) ? DType::c128
                                                                : DType::f64;
    index = record_call(seal(std::move(call)), {index}, step.params) + step.result;
  }
  return cast(as_pairs(index), DType::i64);
}

// `written` as the whole holds it: what the steps do to each element is undone.
ValueId undone(c10::ArrayRef<ViewStep> steps, ValueId written) {
  for (size_t i = steps.size(); i-- > 0;) {
    if (!is_elementwise(steps[i])) continue;
    const TensorType type = Recorder::instance().type(written);
    const bool bits = steps[i].call->op == "aten.view.dtype";
    const DType dtype = to_dtype(steps[i].in.dtype);
    if ((bits && c10::elementSize(steps[i].in.dtype) != c10::elementSize(steps[i].out.dtype)) ||
        (!bits && dtype != type.dtype))
      throw ShardingError(
          "a part of a repeated tensor, seen as another dtype, cannot be written. Expected a view that keeps the size "
          "of an element, or one of a tensor without repeats. Write to a clone() of it instead.");
    written = unary(steps[i].call->op, written, bits ? std::vector<Arg>{dtype} : std::vector<Arg>{}, dtype, type.shape);
  }
  return written;
}

// base with `written` put where `steps` read.
ValueId scatter_back(c10::ArrayRef<ViewStep> steps, ValueId base, ValueId written) {
  const TensorType type = Recorder::instance().type(base);
  const bool pairs = std::any_of(steps.begin(), steps.end(), is_of_pairs);
  const ValueId index = places(steps, type, pairs);
  written = undone(steps, written);
  ValueId whole = base;
  if (pairs) {
    whole = as_pairs(whole);
    written = as_pairs(written);
  }
  const Shape sizes = Recorder::instance().type(whole).shape;
  const int64_t changed = numel(Recorder::instance().type(index).shape);
  const ValueId flat = scatter(view(whole, {numel(sizes)}), view(index, {changed}), view(written, {changed}));
  const ValueId result = view(flat, sizes);
  return sizes == type.shape ? result : unary("aten.view_as_complex", result, {}, type.dtype, type.shape);
}

ValueId into_view(const ViewStep& step, ValueId, ValueId written) { return view(written, step.in.sizes); }

ValueId into_permute(const ViewStep& step, ValueId, ValueId written) {
  const auto& dims = std::get<std::vector<int64_t>>(step.call->args[1]);
  std::vector<int64_t> inverse(dims.size());
  for (size_t i = 0; i < dims.size(); ++i) inverse[dims[i]] = static_cast<int64_t>(i);
  return permute(written, inverse);
}

// slice → slice_scatter, select → select_scatter, diagonal → diagonal_scatter: the source's value, then the step's own
// arguments.
ValueId into_part(const ViewStep& step, ValueId source, ValueId written) {
  const std::string op = std::string(base_name(step.call->op)) + "_scatter";
  std::vector<Arg> rest(step.call->args.begin() + 1, step.call->args.end());
  return record_call(make_call(op, {type_of(step.in), type_of(step.out)}, std::move(rest), type_of(step.in)),
                     {source, written});
}

bool is_part(const ViewStep& step) {
  return step.call->op == "aten.select.int" || step.call->op == "aten.slice.Tensor";
}

// Of each dim of a tensor the rows that slices and selects, one after the other, leave of it.
struct Ranges {
  std::vector<int64_t> firsts, steps;
  Shape sizes;  // 1 where one row is selected

  explicit Ranges(c10::ArrayRef<ViewStep> parts) : sizes(parts.front().in.sizes) {
    firsts.assign(sizes.size(), 0);
    steps.assign(sizes.size(), 1);
    std::vector<size_t> shown(sizes.size());  // the dims that are left
    std::iota(shown.begin(), shown.end(), 0);
    for (const ViewStep& part : parts) {
      const auto dim = static_cast<size_t>(normal_dim(integer(*part.call, 1, 0), shown.size()));
      const size_t at = shown[dim];
      int64_t first = integer(*part.call, 2, 0);
      if (first < 0) first += sizes[at];
      firsts[at] += std::clamp<int64_t>(first, 0, sizes[at]) * steps[at];
      if (part.call->op == "aten.select.int") {
        sizes[at] = 1;
        shown.erase(shown.begin() + static_cast<long>(dim));
      } else {
        steps[at] *= integer(*part.call, 4, 1);
        sizes[at] = part.out.sizes[dim];
      }
    }
  }
};

// Several slices and selects are one write: a tensor of what some of them show would be copied.
ValueId into_parts(c10::ArrayRef<ViewStep> parts, ValueId source, ValueId written) {
  const Meta& whole = parts.front().in;
  Ranges ranges(parts);
  std::vector<int64_t> dims, firsts, steps;
  for (size_t d = 0; d < ranges.sizes.size(); ++d) {
    if (ranges.sizes[d] == whole.sizes[d] && ranges.steps[d] == 1) continue;
    dims.push_back(static_cast<int64_t>(d));
    firsts.push_back(ranges.firsts[d]);
    steps.push_back(ranges.steps[d]);
  }
  written = view(written, ranges.sizes);
  if (dims.empty()) return written;
  const TensorType type = type_of(whole);
  return record_call(
      make_call("spmdx.write_range", {type, {type.dtype, ranges.sizes, false}}, {dims, firsts, steps}, type),
      {source, written});
}

ValueId into_expand(const ViewStep& step, ValueId, ValueId written) { return view(written, step.in.sizes); }

// Shows some element at two places.
bool repeats(const ViewStep& step) {
  const auto& args = step.call->args;
  if (step.call->op == "aten.expand") return numel(step.in.sizes) != numel(step.out.sizes);
  if (step.call->op == "aten.unfold") return std::get<int64_t>(args[2]) > std::get<int64_t>(args[3]);
  return step.call->op == "spmdx.as_strided" && may_repeat(step.out.sizes, step.out.strides);
}

// Ops that undo themselves or each other.
ValueId into_same(const ViewStep& step, ValueId, ValueId written) {
  return record_call(make_call(step.call->op, {type_of(step.out)}, {}, type_of(step.in)), {written});
}
ValueId into_real(const ViewStep& step, ValueId, ValueId written) {
  return record_call(make_call("aten.view_as_complex", {type_of(step.out)}, {}, type_of(step.in)), {written});
}
ValueId into_complex(const ViewStep& step, ValueId, ValueId written) {
  return record_call(make_call("aten.view_as_real", {type_of(step.out)}, {}, type_of(step.in)), {written});
}
ValueId into_bits(const ViewStep& step, ValueId, ValueId written) {
  return record_call(make_call("aten.view.dtype", {type_of(step.out)}, {type_of(step.in).dtype}, type_of(step.in)),
                     {written});
}

using WriteBack = ValueId (*)(const ViewStep&, ValueId, ValueId);
const std::unordered_map<std::string, WriteBack>& inverses() {
  static const std::unordered_map<std::string, WriteBack> rows = {
      {"aten.conj_physical", into_same}, {"aten.diagonal", into_part},
      {"aten.expand", into_expand},      {"aten.neg", into_same},
      {"aten.permute", into_permute},    {"aten.select.int", into_part},
      {"aten.slice.Tensor", into_part},  {"aten.view", into_view},
      {"aten.view.dtype", into_bits},    {"aten.view_as_complex", into_complex},
      {"aten.view_as_real", into_real}};
  return rows;
}

// Where each run of steps begins that are undone together: neighbours that take parts, and all from `direct` on.
std::vector<size_t> undone_together(const std::vector<ViewStep>& steps, size_t direct) {
  std::vector<size_t> begins{0};
  for (size_t i = 1; i < steps.size(); ++i)
    if (i <= direct && !(i < direct && is_part(steps[i - 1]) && is_part(steps[i]))) begins.push_back(i);
  return begins;
}

ValueId undo(c10::ArrayRef<ViewStep> run, ValueId source, ValueId written) {
  if (run.size() > 1 && is_part(run.front())) return into_parts(run, source, written);
  const auto row = inverses().find(run.front().call->op);
  if (repeats(run.front()) || row == inverses().end()) return scatter_back(run, source, written);
  return row->second(run.front(), source, written);
}

}  // namespace

ValueId write_back(const std::vector<ViewStep>& steps, ValueId base, ValueId written) {
  if (steps.empty()) return written;
  // Where one element is shown at several places and only some of these are written, the places get different values.
  // So from the first step on that repeats elements there is no inverse step by step.
  const auto first = std::find_if(steps.begin(), steps.end(), repeats);
  const auto direct = static_cast<size_t>(first - steps.begin());
  const std::vector<size_t> begins = undone_together(steps, direct);
  std::vector<ValueId> sources{base};
  for (size_t i = 0; i < begins.back(); ++i)
    sources.push_back(record_call(steps[i].call, {sources[i]}, steps[i].params) + steps[i].result);
  size_t end = steps.size();
  for (size_t i = begins.size(); i-- > 0; end = begins[i])
    written = undo(c10::ArrayRef<ViewStep>(steps).slice(begins[i], end - begins[i]), sources[begins[i]], written);
  return written;
}

}  // namespace spmdx::bridge
