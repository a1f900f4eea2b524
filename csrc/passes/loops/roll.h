// SPDX-License-Identifier: Apache-2.0
// Roll: a program with a loop becomes one with three iterations, or four iterations, of which one stands for those that are like it.
#pragma once
#include <memory>

#include "passes/loops/loop.h"

namespace spmdx {

struct Rolled {
  std::shared_ptr<const Graph> whole;  // the program as it was
  Loop loop;
  // By output of the rolled program: which one of the whole it is; kNone: an own value that no iteration makes itself.
  std::vector<uint32_t> outputs;
  // By own value and iteration: the output of the rolled program that it is; of an input, the input.
  struct Own {
    bool inputs = false;
    std::vector<uint32_t> at;
  };
  std::vector<Own> own;
};

// What lies between the first iteration and the last one is left out of `graph`, but for what makes own values. Nodes
// know where they have their starts from. REQUIRES: `loop` was found in the whole.
Rolled roll(std::shared_ptr<const Graph> whole, Loop loop, Graph& graph);

}  // namespace spmdx
