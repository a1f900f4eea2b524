// SPDX-License-Identifier: Apache-2.0
// Views of every view op as chains of canonical steps.
#pragma once
#include "bridge/record/call/ivalue.h"
#include "bridge/record/call/op_info.h"
#include "bridge/tensor/meta.h"

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

}  // namespace spmdx::bridge
