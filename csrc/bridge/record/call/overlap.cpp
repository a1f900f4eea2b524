// SPDX-License-Identifier: Apache-2.0
// ATen's checks for overlapping memory, on the declared layouts of lazy tensors.
#include "bridge/record/call/overlap.h"

#include <algorithm>
#include <array>

#include "bridge/backend/aten_facts.h"

#include "bridge/backend/strides.h"
#include "bridge/tensor/tensor.h"

namespace spmdx::bridge {
namespace {

// "aten.add_" → "aten.add".
std::string plain_name(const OpInfo& info) {
  return info.base.ends_with('_') ? info.base.substr(0, info.base.size() - 1) : info.base;
}

Overlap kind_of(const OpInfo& info) { return facts_of(plain_name(info)).overlap; }

// Whether a write to a target with repeated elements is refused. It is not where every place gets the same number.
// PyTorch refuses dims of stride 0; other repeats it does not see, and the result would depend on the order of writes.
bool repeats_are_refused(const OpInfo& info, const at::Tensor& target) {
  static constexpr std::array<std::string_view, 5> fills = {
      "aten._foreach_zero_", "aten.fill_.Scalar", "aten.masked_fill_.Scalar", "aten.masked_fill_.Tensor", "aten.zero_"};
  if (!may_repeat(target.sizes(), target.strides())) return false;
  if (std::find(fills.begin(), fills.end(), info.name) != fills.end()) return false;
  for (int64_t d = 0; d < target.dim(); ++d)
    if (target.stride(d) == 0 && target.size(d) > 1) return true;
  return info.name != "aten.fill_.Tensor" && info.name != "aten.copy_";  // copy_ checks its source itself
}

// Whether the op changes what a tensor views, and not its elements.
bool writes_no_elements(const OpInfo& info) {
  static constexpr std::array<std::string_view, 11> names = {
      "aten.as_strided_", "aten.detach_",    "aten.record_stream", "aten.resize_",
      "aten.resize_as_",  "aten.set_",       "aten.squeeze_",      "aten.swapaxes_",
      "aten.t_",          "aten.transpose_", "aten.unsqueeze_"};
  return std::find(names.begin(), names.end(), info.base) != names.end();
}

struct Span {
  int64_t begin = 0, end = 0;  // bytes of the storage
};

Span span_of(const at::Tensor& dense) {
  const int64_t begin = dense.storage_offset() * dense.element_size();
  return {begin, begin + dense.numel() * dense.element_size()};
}

enum class Shared { none, part, all };

// What ATen finds: for tensors with holes or repeats it reports no shared memory.
Shared shared_bytes(const at::Tensor& a, const at::Tensor& b) {
  const LazyTensor *lazy_a = as_lazy(a), *lazy_b = as_lazy(b);
  if (!lazy_a || !lazy_b || &lazy_a->root() != &lazy_b->root()) return Shared::none;
  if (a.numel() == 0 || b.numel() == 0) return Shared::none;
  if (lazy_a == lazy_b) return Shared::all;
  if (!a.is_non_overlapping_and_dense() || !b.is_non_overlapping_and_dense()) return Shared::none;
  const Span first = span_of(a), second = span_of(b);
  if (first.begin == second.begin && first.end == second.end)
    return a.strides() == b.strides() ? Shared::all : Shared::part;
  return first.begin < second.end && second.begin < first.end ? Shared::part : Shared::none;
}

[[noreturn]] void refuse_sharing() {
  throw std::runtime_error(
      "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single memory "
      "location. Please clone() the tensor before performing the operation.");
}

void check_pair(Overlap kind, const at::Tensor& target, const at::Tensor& operand) {
  if (kind == Overlap::unchecked || !operand.defined() || operand.unsafeGetTensorImpl() == target.unsafeGetTensorImpl())
    return;
  const Shared shared = shared_bytes(target, operand);
  if (shared == Shared::part || (shared == Shared::all && kind == Overlap::apart)) refuse_sharing();
}

// Checks an op on lists: item i of each list of operands belongs to item i of the written list.
void check_list(const OpInfo& info, IValues args, const c10::IValue& targets) {
  const auto items = targets.toListRef();
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i].isTensor()) continue;
    const at::Tensor& target = items[i].toTensor();
    if (repeats_are_refused(info, target)) refuse_repeats();
    for (const auto& arg : args)
      if (arg.isTensorList() && arg.toListRef().size() == items.size() && arg.toListRef()[i].isTensor())
        check_pair(Overlap::elements, target, arg.toListRef()[i].toTensor());
  }
}

void check_target(const OpInfo& info, IValues args, const at::Tensor& target) {
  if (repeats_are_refused(info, target)) refuse_repeats();
  const Overlap kind = kind_of(info);
  for (const auto& arg : args) {
    if (arg.isTensor()) {
      check_pair(kind, target, arg.toTensor());
    } else if (arg.isTensorList()) {
      for (const auto& item : arg.toListRef()) check_pair(kind, target, item.toTensor());
    }
  }
}

}  // namespace

void refuse_repeats() {
  throw std::runtime_error(
      "unsupported operation: more than one element of the written-to tensor refers to a single memory location. "
      "Please clone() the tensor before performing the operation.");
}

void check_overlaps(const OpInfo& info, IValues args) {
  if (info.written.empty() || writes_no_elements(info)) return;
  for (const int written : info.written) {
    if (args[written].isTensor()) {
      const at::Tensor& target = args[written].toTensor();
      if (as_lazy(target)) check_target(info, args, target);
    } else if (args[written].isTensorList()) {
      check_list(info, args, args[written]);
    }
  }
}

}  // namespace spmdx::bridge
