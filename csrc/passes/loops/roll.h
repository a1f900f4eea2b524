// SPDX-License-Identifier: Apache-2.0
// Roll: a program with a loop becomes one with three or four iterations, of which one stands for those like it.
#pragma once
#include <memory>

#include "passes/loops/loop.h"

namespace spmdx {

struct Rolled {
  std::shared_ptr<const Graph> whole;  // the program as it was
  Loop loop;
  std::vector<uint32_t> outputs;  // by output of the rolled program: which one of the whole it is
};

// What lies between the first iteration and the last one is left out of `graph`. Nodes know where they have their
// starts from. REQUIRES: `loop` was found in the whole.
Rolled roll(std::shared_ptr<const Graph> whole, Loop loop, Graph& graph);

}  // namespace spmdx
