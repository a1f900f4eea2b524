// SPDX-License-Identifier: Apache-2.0
// Writes through views: what the root becomes, step by step inverse or by element numbers.
#include <unordered_map>

#include "bridge/alias.h"
#include "bridge/record.h"
#include "bridge/tracer.h"

namespace spmdx::bridge {
namespace {

// base with `written` put where `steps` read: the steps applied to element numbers say where.
ValueId scatter_back(c10::ArrayRef<ViewStep> steps, ValueId base, ValueId written) {
  const Shape& sizes = steps.front().in.sizes;
  const int64_t count = numel(sizes), changed = numel(steps.back().out.sizes);
  ValueId index = view(iota(count), sizes);
  for (const auto& step : steps) {
    Call call = *step.call;
    call.inputs[0].dtype = DType::i64;
    call.outputs[0].dtype = DType::i64;
    index = record_call(seal(std::move(call)), {index}, step.params) + step.result;
  }
  const ValueId flat = scatter(view(base, {count}), view(index, {changed}), view(written, {changed}));
  return view(flat, sizes);
}

ValueId into_view(const ViewStep& step, ValueId, ValueId written) { return view(written, step.in.sizes); }

ValueId into_permute(const ViewStep& step, ValueId, ValueId written) {
  const auto& dims = std::get<std::vector<int64_t>>(step.call->args[1]);
  std::vector<int64_t> inverse(dims.size());
  for (size_t i = 0; i < dims.size(); ++i) inverse[dims[i]] = static_cast<int64_t>(i);
  return permute(written, inverse);
}

// slice → slice_scatter, select → select_scatter: the source's value, then the step's own arguments.
ValueId into_part(const ViewStep& step, ValueId source, ValueId written) {
  const std::string op = step.call->op == "aten.select.int" ? "aten.select_scatter" : "aten.slice_scatter";
  std::vector<Arg> rest(step.call->args.begin() + 1, step.call->args.end());
  return record_call(make_call(op, {type_of(step.in), type_of(step.out)}, std::move(rest), type_of(step.in)),
                     {source, written});
}

ValueId into_expand(const ViewStep& step, ValueId, ValueId written) { return view(written, step.in.sizes); }

bool repeats(const ViewStep& step) {
  return step.call->op == "aten.expand" && numel(step.in.sizes) != numel(step.out.sizes);
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
      {"aten.view", into_view},         {"aten.permute", into_permute},
      {"aten.slice.Tensor", into_part}, {"aten.select.int", into_part},
      {"aten.expand", into_expand},     {"aten.conj_physical", into_same},
      {"aten.neg", into_same},          {"aten.view_as_real", into_real},
      {"aten.view.dtype", into_bits},   {"aten.view_as_complex", into_complex}};
  return rows;
}

}  // namespace

ValueId write_back(const std::vector<ViewStep>& steps, ValueId base, ValueId written) {
  // A part of an expanded tensor may be written although the whole may not: no step by step inverse.
  if (std::any_of(steps.begin(), steps.end(), repeats)) return scatter_back(steps, base, written);
  std::vector<ValueId> sources{base};
  for (size_t i = 0; i + 1 < steps.size(); ++i) {
    sources.push_back(record_call(steps[i].call, {sources[i]}, steps[i].params) + steps[i].result);
  }
  for (size_t i = steps.size(); i-- > 0;) {
    auto row = inverses().find(steps[i].call->op);
    written = row == inverses().end() ? scatter_back(steps[i], sources[i], written)
                                      : row->second(steps[i], sources[i], written);
  }
  return written;
}

}  // namespace spmdx::bridge
