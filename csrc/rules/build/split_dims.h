// SPDX-License-Identifier: Apache-2.0
// Rules of calls where a dim is a product: letters for its parts, then the parts as the factors of one dim.
#pragma once
#include "rules/build/letters.h"

namespace spmdx::rules {

// A copy of a call whose dims may be seen as two, major and minor.
class SplitDims {
 public:
  explicit SplitDims(const Call& call) : call_(call), inputs_(call.inputs.size()), outputs_(call.outputs.size()) {}

  // Dim `dim` of an operand or result as [major, size / major]; a dim of size 1 as [1, 1]. At most one dim a tensor.
  void split_input(size_t tensor, size_t dim, int64_t major) {
    split(call_.inputs.at(tensor), inputs_, tensor, dim, major);
  }
  void split_output(size_t tensor, size_t dim, int64_t major) {
    split(call_.outputs.at(tensor), outputs_, tensor, dim, major);
  }
  // The rule of these letters, which count split dims twice, for the call as it is.
  OpRule rule(const Letters& letters) const;

 private:
  static void split(TensorType& type, std::vector<int>& at, size_t tensor, size_t dim, int64_t major);

  Call call_;
  std::vector<int> inputs_, outputs_;  // 1 + the dim that is split, 0: none
};

}  // namespace spmdx::rules
