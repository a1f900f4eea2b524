// SPDX-License-Identifier: Apache-2.0
// The canonical steps of every view op.
#include "bridge/record/call/views.h"

#include <numeric>
#include <unordered_map>

#include "base/error.h"
#include "bridge/tensor/calls.h"
#include "bridge/tensor/view_steps.h"

namespace spmdx::bridge {
namespace {

int64_t wrap(int64_t index, size_t count) { return index < 0 ? index + static_cast<int64_t>(count) : index; }

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
  steps.add(make_call("aten.conj_physical", {steps.type()}, {}, type_of(out)));
}
void negated(Steps& steps, IValues, const Meta& out, size_t) {
  steps.add(make_call("aten.neg", {steps.type()}, {}, type_of(out)));
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

// "aten.expand_copy" → "aten.expand", which shows the same elements.
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

// The step of a view op that has no canonical form: the op itself.
ViewStep own_step(const OpInfo& info, IValues args, const Meta& in, const Meta& out) {
  std::vector<Arg> rest;
  uint32_t params = 0;
  for (size_t i = 1; i < args.size(); ++i) rest.push_back(to_arg(info.kinds[i], args[i], true, params));
  return view_step(make_call(info.name, {type_of(in)}, std::move(rest), type_of(out)), in, out);
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
    std::vector<ViewStep> chain;
    if (make) {
      Steps steps(in);
      make(steps, args, results[i], i);
      chain = steps.take();
    } else {
      internal_check(results.size() == 1, "a view op of several results has no canonical form: " + info.name);
      chain = {own_step(info, args, in, results[i])};
    }
    views.push_back(
        {chain.empty() ? nullptr : std::make_shared<const std::vector<ViewStep>>(std::move(chain)), results[i]});
  }
  return views;
}

}  // namespace spmdx::bridge
