// SPDX-License-Identifier: Apache-2.0
// Fetch: data that lie in other processes come here, for whoever reads a tensor.
#pragma once
#include "runtime/data/data.h"

namespace spmdx::bridge {

// `data`, if every process holds all of them; else the same values whole in every process. An exchange between all
// processes, so all of them have to ask. Does not wait for it. Holds the recorder's lock. Gives up the GIL.
DataRef held_here(const DataRef& data);

}  // namespace spmdx::bridge
