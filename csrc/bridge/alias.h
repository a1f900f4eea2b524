// SPDX-License-Identifier: Apache-2.0
// Views as chains of canonical steps, and how a write through a view changes what it views.
#pragma once
#include "bridge/ivalue.h"

namespace spmdx::bridge {

// One result of a view-like op on a tensor declared as `in`: its steps and its layout.
struct ViewResult {
  ViewChain steps;  // null: the same elements
  Meta meta;        // offset relative to the source's
};

// Ops that only show elements of their first operand, whether or not the result aliases it. OpInfo keeps the answer.
bool is_view_like(const OpInfo& info);
// `results` are the declared layouts that shape inference gave, offsets relative to `in`.
std::vector<ViewResult> view_results(const OpInfo& info, IValues args, const Meta& in,
                                     const std::vector<Meta>& results);

// Whether elements at no two places of a layout share an address, and every address in it is of one.
bool is_dense(const Meta& meta);
// Steps from a whole root laid out as `base` to the elements at (sizes, strides, offset) of its storage.
std::vector<ViewStep> strided_steps(const Meta& base, const Meta& target);

// The value of a root, now `base`, after what `steps` show of it was overwritten with `written`.
ValueId write_back(const std::vector<ViewStep>& steps, ValueId base, ValueId written);

}  // namespace spmdx::bridge
