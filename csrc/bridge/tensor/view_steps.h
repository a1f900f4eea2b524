// SPDX-License-Identifier: Apache-2.0
// Steps: builds a chain of canonical view steps.
#pragma once
#include <algorithm>

#include "bridge/backend/aten_names.h"
#include "bridge/backend/strides.h"
#include "bridge/tensor/calls.h"
#include "bridge/tensor/meta.h"

namespace spmdx::bridge {

// The step of a call without parameters.
inline ViewStep view_step(CallRef call, const Meta& in, const Meta& out) { return {std::move(call), {}, 0, in, out}; }

// Each step starts from the layout in which the last one ended. Steps that change nothing are left out.
class Steps {
 public:
  explicit Steps(Meta from) : at_(std::move(from)) {}
  void add(CallRef call) {
    Meta next = at_;
    next.sizes = call->outputs[0].shape;
    next.dtype = to_scalar_type(call->outputs[0].dtype);
    next.strides = contiguous_strides(next.sizes);
    next.offset = 0;
    steps_.push_back(view_step(std::move(call), at_, next));
    at_ = std::move(next);
  }
  TensorType type() const { return type_of(at_); }
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

}  // namespace spmdx::bridge
