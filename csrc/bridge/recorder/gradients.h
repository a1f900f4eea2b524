// SPDX-License-Identifier: Apache-2.0
// Gradients of leaves, as autograd stores them.
#pragma once
#include "bridge/tensor/tensor.h"

namespace spmdx::bridge {

// Both: Holds the recorder's lock, on the thread that runs the op.

// The leaf whose gradient autograd stores now; null: it does something else.
const LazyTensor* leaf_of_current_node();
// Notes the result of an op that autograd stores as a leaf's gradient, if it is one.
void note_gradient(const c10::IValue& result);

}  // namespace spmdx::bridge
