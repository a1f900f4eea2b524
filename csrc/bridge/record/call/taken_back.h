// SPDX-License-Identifier: Apache-2.0
// Ops that torch.library has taken back: the next op of the name may be another one, with its schema in the same place.
#pragma once
#include <vector>

namespace spmdx::bridge {

// The addresses of the schemas that were taken back since the last call; the first call only begins to listen. Costs
// one atomic read where there are none. REQUIRES: the recorder's lock.
std::vector<const void*> schemas_taken_back();

}  // namespace spmdx::bridge
