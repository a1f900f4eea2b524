// SPDX-License-Identifier: Apache-2.0
// Canonical view steps of every view op, and their inverses for writes.
#include "bridge/alias.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "base/error.h"
#include "bridge/aten_backend.h"
#include "bridge/record.h"
#include "bridge/tracer.h"

namespace spmdx::bridge {
namespace {

int64_t wrap(int64_t index, size_t count) { return index < 0 ? index + static_cast<int64_t>(count) : index; }

TensorType type_in(const Meta& meta) { return type_of(meta); }

ViewStep step(CallRef call, const Meta& in, const Meta& out) { return {std::move(call), {}, 0, in, out}; }

// A chain being built: each step starts from the layout where the last one ended.
class Steps {
 public:
  explicit Steps(Meta from) : at_(std::move(from)) {}
  void add(CallRef call) {
    Meta next = at_;
    next.sizes = call->outputs[0].shape;
    next.dtype = to_scalar_type(call->outputs[0].dtype);
    next.strides = contiguous_strides(next.sizes);
    next.offset = 0;
    steps_.push_back(step(std::move(call), at_, next));
    at_ = std::move(next);
  }
  TensorType type() const { return type_in(at_); }
  const Shape& sizes() const { return at_.sizes; }
  void view(const Shape& sizes) {
    if (sizes != at_.sizes) add(view_call(type(), sizes));
  }
  void slice(int64_t dim, int64_t start, int64_t end, int64_t stride) {
    if (start != 0 || end != at_.sizes[dim] || stride != 1) add(slice_call(type(), dim, start, end, stride));
  }
  void select(int64_t dim, int64_t index) { add(select_call(type(), dim, index)); }
  void expand(const Shape& sizes) {
    if (sizes != at_.sizes) add(expand_call(type(), sizes));
  }
  void permute(const std::vector<int64_t>& dims) {
    if (!std::is_sorted(dims.begin(), dims.end())) add(permute_call(type(), dims));
  }
  std::vector<ViewStep> take() { return std::move(steps_); }

 private:
  Meta at_;
  std::vector<ViewStep> steps_;
};

using Make = void (*)(Steps& steps, IValues args, const Meta& out, size_t result);

void no_steps(Steps&, IValues, const Meta&, size_t) {}
void to_sizes(Steps& steps, IValues, const Meta& out, size_t) { steps.view(out.sizes); }

void transposed(Steps& steps, IValues args, const Meta&, size_t) {
  std::vector<int64_t> dims(steps.sizes().size());
  std::iota(dims.begin(), dims.end(), 0);
  if (dims.empty()) return;
  std::swap(dims[wrap(int_value(args[1]), dims.size())], dims[wrap(int_value(args[2]), dims.size())]);
  steps.permute(dims);
}

void matrix_transposed(Steps& steps, IValues, const Meta&, size_t) {
  if (steps.sizes().size() == 2) steps.permute({1, 0});
}

void permuted(Steps& steps, IValues args, const Meta&, size_t) {
  auto dims = int_list(args[1]);
  for (auto& dim : dims) dim = wrap(dim, dims.size());
  steps.permute(dims);
}

void sliced(Steps& steps, IValues args, const Meta&, size_t) {
  const int64_t dim = wrap(args[1].isNone() ? 0 : int_value(args[1]), steps.sizes().size());
  const int64_t size = steps.sizes()[dim];
  auto clamped = [&](const c10::IValue& value, int64_t absent) {
    return value.isNone() ? absent : std::clamp<int64_t>(wrap(int_value(value), size), 0, size);
  };
  const int64_t start = clamped(args[2], 0), end = std::max(start, clamped(args[3], size));
  steps.slice(dim, start, end, int_value(args[4]));
}

void selected(Steps& steps, IValues args, const Meta&, size_t) {
  const int64_t dim = wrap(int_value(args[1]), steps.sizes().size());
  steps.select(dim, wrap(int_value(args[2]), steps.sizes()[dim]));
}

void expanded(Steps& steps, IValues, const Meta& out, size_t) { steps.expand(out.sizes); }

void split_equal(Steps& steps, IValues args, const Meta& out, size_t result) {
  const int64_t dim = wrap(int_value(args[2]), steps.sizes().size());
  const int64_t start = int_value(args[1]) * static_cast<int64_t>(result);
  steps.slice(dim, start, start + out.sizes[dim], 1);
}

void split_sizes(Steps& steps, IValues args, const Meta& out, size_t result) {
  const int64_t dim = wrap(int_value(args[2]), steps.sizes().size());
  const auto sizes = int_list(args[1]);
  const int64_t start = std::accumulate(sizes.begin(), sizes.begin() + result, int64_t{0});
  steps.slice(dim, start, start + out.sizes[dim], 1);
}

void unbound(Steps& steps, IValues args, const Meta&, size_t result) {
  steps.select(wrap(int_value(args[1]), steps.sizes().size()), static_cast<int64_t>(result));
}

void conjugated(Steps& steps, IValues, const Meta& out, size_t) {
  steps.add(make_call("aten.conj_physical", {steps.type()}, {}, type_in(out)));
}
void negated(Steps& steps, IValues, const Meta& out, size_t) {
  steps.add(make_call("aten.neg", {steps.type()}, {}, type_in(out)));
}

const std::unordered_map<std::string, Make>& table() {
  static const std::unordered_map<std::string, Make> rows = {{"aten._conj", conjugated},
                                                             {"aten._neg_view", negated},
                                                             {"aten._reshape_alias", to_sizes},
                                                             {"aten._unsafe_view", to_sizes},
                                                             {"aten.alias", no_steps},
                                                             {"aten.clone", no_steps},
                                                             {"aten.detach", no_steps},
                                                             {"aten.expand", expanded},
                                                             {"aten.lift", no_steps},
                                                             {"aten.lift_fresh", no_steps},
                                                             {"aten.permute", permuted},
                                                             {"aten.select.int", selected},
                                                             {"aten.slice.Tensor", sliced},
                                                             {"aten.split.Tensor", split_equal},
                                                             {"aten.split_with_sizes", split_sizes},
                                                             {"aten.squeeze", to_sizes},
                                                             {"aten.squeeze.dim", to_sizes},
                                                             {"aten.squeeze.dims", to_sizes},
                                                             {"aten.t", matrix_transposed},
                                                             {"aten.transpose.int", transposed},
                                                             {"aten.unbind.int", unbound},
                                                             {"aten.unsafe_split.Tensor", split_equal},
                                                             {"aten.unsafe_split_with_sizes", split_sizes},
                                                             {"aten.unsqueeze", to_sizes},
                                                             {"aten.view", to_sizes}};
  return rows;
}

// "aten.expand_copy" → "aten.expand": the same elements, with storage of their own.
std::string without_copy(const std::string& name) {
  const auto at = name.find("_copy");
  if (at == name.npos || name == "aten._to_copy") return name;
  std::string plain = name;
  return plain.erase(at, 5);
}

Make find_make(const OpInfo& info) {
  auto found = table().find(info.name);
  if (found == table().end()) found = table().find(without_copy(info.name));
  return found == table().end() ? nullptr : found->second;
}

// A view op of no canonical form is recorded as it is.
ViewStep own_step(const OpInfo& info, IValues args, const Meta& in, const Meta& out) {
  std::vector<Arg> rest;
  uint32_t params = 0;
  for (size_t i = 1; i < args.size(); ++i) rest.push_back(to_arg(info.slots[i], args[i], true, params));
  return step(make_call(info.name, {type_in(in)}, std::move(rest), type_in(out)), in, out);
}

// ---- as_strided ------------------------------------------------------------------------------------

struct StridedDim {
  int64_t size, stride, from;  // `from`: the dim of the base it walks along, -1 none
  int64_t step = 1;
};

// Matches target dims to base dims and the offset to starts. False where the strides do not say.
bool match_dims(const Meta& base, const Meta& target, std::vector<StridedDim>& dims, std::vector<int64_t>& starts) {
  const size_t rank = base.sizes.size();
  std::vector<int64_t> order(rank);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return base.strides[a] > base.strides[b]; });
  starts.assign(rank, 0);
  int64_t rest = target.offset;
  for (int64_t d : order) {
    if (base.sizes[d] <= 1 || base.strides[d] <= 0) continue;
    starts[d] = std::min(rest / base.strides[d], base.sizes[d] - 1);
    rest -= starts[d] * base.strides[d];
  }
  if (rest != 0) return false;
  std::vector<bool> taken(rank, false);
  for (size_t t = 0; t < target.sizes.size(); ++t) {
    StridedDim dim{target.sizes[t], target.strides[t], -1};
    if (dim.size > 1 && dim.stride > 0) {
      for (int64_t d : order) {
        if (taken[d] || base.sizes[d] <= 1 || base.strides[d] <= 0 || dim.stride % base.strides[d]) continue;
        const int64_t k = dim.stride / base.strides[d];
        if (starts[d] + (dim.size - 1) * k >= base.sizes[d]) continue;
        dim.from = d;
        dim.step = k;
        taken[d] = true;
        break;
      }
      if (dim.from < 0) return false;
    }
    dims.push_back(dim);
  }
  return true;
}

// Elements at no two places of `meta` share an address, and every address is inside; what matching relies on.
bool is_dense(const Meta& meta) {
  std::vector<std::pair<int64_t, int64_t>> dims;
  for (size_t d = 0; d < meta.sizes.size(); ++d) {
    if (meta.sizes[d] != 1) dims.emplace_back(meta.strides[d], meta.sizes[d]);
  }
  std::sort(dims.begin(), dims.end());
  int64_t expected = 1;
  for (auto [stride, size] : dims) {
    if (stride != expected) return false;
    expected *= size;
  }
  return true;
}

std::vector<ViewStep> matched_steps(const Meta& base, const Meta& target, const std::vector<StridedDim>& dims,
                                    const std::vector<int64_t>& starts) {
  Steps steps(base);
  std::vector<int64_t> place(base.sizes.size(), -1);
  for (const auto& dim : dims) {
    if (dim.from < 0) continue;
    place[dim.from] = 0;
    const int64_t start = starts[dim.from], end = start + (dim.size - 1) * dim.step + 1;
    steps.slice(dim.from, start, end, dim.step);
  }
  for (size_t d = base.sizes.size(); d-- > 0;) {
    if (place[d] < 0) steps.select(static_cast<int64_t>(d), starts[d]);
  }
  int64_t kept = 0;
  for (auto& at : place) {
    if (at == 0) at = kept++;
  }
  std::vector<int64_t> order;
  Shape ones = target.sizes;
  for (size_t t = 0; t < dims.size(); ++t) {
    if (dims[t].from >= 0)
      order.push_back(place[dims[t].from]);
    else
      ones[t] = 1;
  }
  steps.permute(order);
  steps.view(ones);
  steps.expand(target.sizes);
  return steps.take();
}

// ---- writing back ----------------------------------------------------------------------------------

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
  return record_call(make_call(op, {type_in(step.in), type_in(step.out)}, std::move(rest), type_in(step.in)),
                     {source, written});
}

ValueId into_expand(const ViewStep& step, ValueId, ValueId written) { return view(written, step.in.sizes); }

bool repeats(const ViewStep& step) {
  return step.call->op == "aten.expand" && numel(step.in.sizes) != numel(step.out.sizes);
}

// Ops that undo themselves or each other.
ValueId into_same(const ViewStep& step, ValueId, ValueId written) {
  return record_call(make_call(step.call->op, {type_in(step.out)}, {}, type_in(step.in)), {written});
}
ValueId into_real(const ViewStep& step, ValueId, ValueId written) {
  return record_call(make_call("aten.view_as_complex", {type_in(step.out)}, {}, type_in(step.in)), {written});
}
ValueId into_complex(const ViewStep& step, ValueId, ValueId written) {
  return record_call(make_call("aten.view_as_real", {type_in(step.out)}, {}, type_in(step.in)), {written});
}
ValueId into_bits(const ViewStep& step, ValueId, ValueId written) {
  return record_call(make_call("aten.view.dtype", {type_in(step.out)}, {type_in(step.in).dtype}, type_in(step.in)),
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

bool is_view_like(const OpInfo& info) {
  if (info.written.size()) return false;
  return find_make(info) != nullptr || info.viewed == 0;
}

std::vector<ViewResult> view_results(const OpInfo& info, IValues args, const Meta& in,
                                     const std::vector<Meta>& results) {
  std::vector<ViewResult> views;
  const Make make = find_make(info);
  for (size_t i = 0; i < results.size(); ++i) {
    ViewResult result;
    if (make) {
      Steps steps(in);
      make(steps, args, results[i], i);
      result.steps = steps.take();
    } else {
      internal_check(results.size() == 1, "a view op of several results has no canonical form: " + info.name);
      result.steps = {own_step(info, args, in, results[i])};
    }
    result.meta = results[i];
    views.push_back(std::move(result));
  }
  return views;
}

std::vector<ViewStep> strided_steps(const Meta& base, const Meta& target) {
  std::vector<StridedDim> dims;
  std::vector<int64_t> starts;
  if (base.sizes == target.sizes && base.strides == target.strides && target.offset == 0) return {};
  if (numel(target.sizes) > 0 && is_dense(base)) {
    if (match_dims(base, target, dims, starts)) return matched_steps(base, target, dims, starts);
    if (target.offset == 0 && numel(base.sizes) == numel(target.sizes) &&
        base.strides == contiguous_strides(base.sizes) && target.strides == contiguous_strides(target.sizes)) {
      Steps steps(base);
      steps.view(target.sizes);
      return steps.take();
    }
  }
  Meta out = target;
  out.dtype = base.dtype;
  return {step(as_strided_call(type_in(base), target.sizes, target.strides, target.offset, base.strides), base, out)};
}

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
