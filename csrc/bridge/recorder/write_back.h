// SPDX-License-Identifier: Apache-2.0
// How a write through a view changes what it views.
#pragma once
#include <vector>

#include "bridge/tensor/meta.h"

namespace spmdx::bridge {

// The value of a root, now `base`, after what `steps` show of it was overwritten with `written`. Holds the recorder's
// lock.
ValueId write_back(const std::vector<ViewStep>& steps, ValueId base, ValueId written);

}  // namespace spmdx::bridge
