// SPDX-License-Identifier: Apache-2.0
// Any elements of a storage, as canonical steps from the whole that it holds.
#pragma once
#include <vector>

#include "bridge/tensor/meta.h"

namespace spmdx::bridge {

// Whether elements at no two places of a layout share an address, and every address in it is of one.
bool is_dense(const Meta& meta);
// Steps from a whole root laid out as `base` to the elements at (sizes, strides, offset) of its storage.
std::vector<ViewStep> strided_steps(const Meta& base, const Meta& target);
// The same where `meta` may be of another dtype, as bits that stand for something, anywhere in a storage of so many
// bytes that holds `whole`. Throws as eager does where that is beyond the storage.
std::vector<ViewStep> steps_to(const Meta& whole, size_t bytes, const Meta& meta);

}  // namespace spmdx::bridge
