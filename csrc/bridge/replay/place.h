// SPDX-License-Identifier: Apache-2.0
// Place: where a call that is replayed finds the memory of a tensor, and how a tensor shows it.
#pragma once
#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "bridge/tensor/tensor.h"

namespace spmdx::bridge {

// An argument of the call, the gradient that a tensor has when it begins, another root that is there before and after
// it, or one that the call makes.
struct Place {
  enum class Of : uint8_t { argument, gradient, kept, made };
  Of of = Of::kept;
  uint32_t index = 0;
  bool operator==(const Place&) const = default;
};

// What a root was when the call was captured, and has to be when it is replayed.
struct RootState {
  MetaRef base;
  size_t growths = 0;
  std::optional<Annotation> annotation;
};
RootState state_of(const Root& root);
bool is_in(const Root& root, const RootState& state);

// How a tensor shows a root.
struct Shown {
  Meta meta;
  ViewChain chain;
  std::shared_ptr<const Annotation> annotation;  // of a view
  bool requires_grad = false, leaf = true, inference = false;
};
Shown shown_by(const at::Tensor& tensor);
bool shows(const at::Tensor& tensor, const Shown& shown);
bool same(const Meta& a, const Meta& b);
// A new tensor that shows the root so.
at::Tensor show(const RootRef& root, const Shown& shown);

// The root behind a tensor of the device. REQUIRES: it is lazy.
RootRef root_ref(const at::Tensor& tensor);

}  // namespace spmdx::bridge
