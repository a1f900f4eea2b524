// SPDX-License-Identifier: Apache-2.0
// Effort: what a search has looked at, in numbers that do not depend on the machine.
#pragma once
#include <cstdint>

namespace spmdx {

struct Effort {
  int64_t costs_asked = 0;   // what one node would cost with some choice
  int64_t demands_seen = 0;  // layouts wanted of a value, for the time of its moves
};

}  // namespace spmdx
