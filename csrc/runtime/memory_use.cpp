// SPDX-License-Identifier: Apache-2.0
// MemoryUse: the ops whose results are views, and those that may write over their first operand.
#include "runtime/memory_use.h"

#include <set>

namespace spmdx {
namespace {

const std::set<std::string_view> kViews = {"aten.permute",  "aten.expand", "aten.slice",        "aten.select",
                                           "aten.diagonal", "aten.unfold", "aten.view_as_real", "aten.view_as_complex"};

const std::set<std::string_view> kInPlace = {
    "aten.add",        "aten.sub",        "aten.mul",         "aten.div",       "aten.neg",     "aten.exp",
    "aten.sqrt",       "aten.rsqrt",      "aten.relu",        "aten.tanh",      "aten.sigmoid", "aten.addcmul",
    "aten.addcdiv",    "aten.reciprocal", "aten.abs",         "aten.pow",       "aten.log",     "aten.clamp",
    "aten.lerp",       "aten.sin",        "aten.cos",         "aten.clamp_min", "aten.silu",    "aten.gelu",
    "aten.leaky_relu", "aten.hardtanh",   "aten.masked_fill", "aten.clamp_max"};

}  // namespace

MemoryUse memory_use(const Call& call) {
  const std::string_view base = base_name(call.op);
  if (call.op == "aten.view") return MemoryUse::reshape;
  if (kViews.contains(base)) return MemoryUse::view;
  const bool first = !call.args.empty() && call.args[0] == Arg(TensorArg{0});
  if (first && kInPlace.contains(base) && call.outputs.size() == 1 && call.outputs[0] == call.inputs[0])
    return MemoryUse::in_place;
  return MemoryUse::fresh;
}

}  // namespace spmdx
