// SPDX-License-Identifier: Apache-2.0
// Overwriting: whether a kernel may put its result where its first operand is.
#pragma once
#include <span>
#include <vector>

#include "runtime/data/backend.h"

namespace spmdx::bridge {

// Other operands may be small parts of the first one, as where a row of a tensor is written to another one. If nobody
// else holds them, the kernel is given copies of them.
class Overwriting {
 public:
  // `donated`: as Kernel::run has it. REQUIRES: `inputs` outlives this.
  Overwriting(std::span<const BufferRef> inputs, int donated);
  explicit operator bool() const { return allowed_; }
  // What the kernel is to be run with.
  std::span<const BufferRef> inputs() const { return copied_.empty() ? inputs_ : copied_; }

 private:
  std::span<const BufferRef> inputs_;
  std::vector<BufferRef> copied_;
  bool allowed_ = false;
};

}  // namespace spmdx::bridge
