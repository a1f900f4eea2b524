// SPDX-License-Identifier: Apache-2.0
// as_strided: any view of a storage as canonical steps from the whole tensor that the storage holds.
#pragma once
#include <vector>

#include "bridge/tensor/meta.h"

namespace spmdx::bridge {

// Whether a layout has no repeats and no holes: each address in its range belongs to one place.
bool is_dense(const Meta& meta);
// Steps from a whole tensor laid out as `base` to the view of its storage at the sizes, strides and offset of `target`.
std::vector<ViewStep> strided_steps(const Meta& base, const Meta& target);
// Steps from `whole`, which a storage of so many bytes holds, to the view `meta`, which may have another dtype, and
// conjugate and negative bits. Throws as eager does if the view reaches beyond the storage.
std::vector<ViewStep> steps_to(const Meta& whole, size_t bytes, const Meta& meta);

}  // namespace spmdx::bridge
