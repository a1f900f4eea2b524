// SPDX-License-Identifier: Apache-2.0
// View ops as chains of canonical steps.
#pragma once
#include "bridge/record/call/ivalue.h"
#include "bridge/record/call/op_info.h"
#include "bridge/tensor/meta.h"

namespace spmdx::bridge {

// One result of a view-like op: the steps from its operand, and its layout.
struct ViewResult {
  ViewChain steps;  // null: the same elements
  Meta meta;        // offset relative to the source's
};

// Whether results of the op only show elements of its first operand, in its memory or in a copy. OpInfo keeps this.
bool is_view_like(const OpInfo& info);
// The results of a view-like op on an operand laid out as `in`. `results`: their declared layouts, from shape
// inference, with offsets relative to `in`.
std::vector<ViewResult> view_results(const OpInfo& info, IValues args, const Meta& in,
                                     const std::vector<Meta>& results);

}  // namespace spmdx::bridge
