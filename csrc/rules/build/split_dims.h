// SPDX-License-Identifier: Apache-2.0
// SplitDims: rules in which one dim has two factors, as a dim of channels that is (group, channel of the group).
#pragma once
#include "rules/build/letters.h"

namespace spmdx::rules {

// A copy of a call in which some dims are split in two, major and minor, so that letters can name both.
class SplitDims {
 public:
  explicit SplitDims(const Call& call) : call_(call), inputs_(call.inputs.size()), outputs_(call.outputs.size()) {}

  // Splits a dim of an operand or result into [major, size / major]; a dim of size 1 into [1, 1]. At most one dim of
  // each tensor may be split, and `major` must divide its size (else InternalError).
  void split_input(size_t tensor, size_t dim, int64_t major) {
    split(call_.inputs.at(tensor), inputs_, tensor, dim, major);
  }
  void split_output(size_t tensor, size_t dim, int64_t major) {
    split(call_.outputs.at(tensor), outputs_, tensor, dim, major);
  }
  // The rule of the original call. `letters` have two letters for each split dim, which become its two factors.
  OpRule rule(const Letters& letters) const;

 private:
  static void split(TensorType& type, std::vector<int>& at, size_t tensor, size_t dim, int64_t major);

  Call call_;
  std::vector<int> inputs_, outputs_;  // per tensor: 1 + the dim that is split, or 0
};

}  // namespace spmdx::rules
