// SPDX-License-Identifier: Apache-2.0
// Merged starts: what a total counts too much, as every move in it is a collective of its own.
#pragma once
#include "passes/search/assignment.h"

namespace spmdx {

// The schedule merges gathers of inputs, which are ready from the start, and sums of gradients, which nobody waits for.
class MergedStarts {
 public:
  explicit MergedStarts(const Assignment& assignment);
  // Time to start them, had each a collective of its own.
  int64_t ns() const;

 private:
  const Assignment& assignment_;
  std::vector<ValueId> values_;
};

}  // namespace spmdx
