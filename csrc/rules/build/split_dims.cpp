// SPDX-License-Identifier: Apache-2.0
// SplitDims: makes the rule of the shapes with split dims, then joins the factors of both halves on the original dim.
#include "rules/build/split_dims.h"

#include "base/error.h"

namespace spmdx::rules {
namespace {

void join(TensorFactors& factors, int at) {
  if (at == 0 || factors.empty()) return;
  std::vector<int>& major = factors.at(static_cast<size_t>(at - 1));
  const std::vector<int>& minor = factors.at(static_cast<size_t>(at));
  major.insert(major.end(), minor.begin(), minor.end());
  factors.erase(factors.begin() + at);
}

}  // namespace

void SplitDims::split(TensorType& type, std::vector<int>& at, size_t tensor, size_t dim, int64_t major) {
  int64_t& size = type.shape.at(dim);
  if (size == 1) major = 1;
  internal_check(at.at(tensor) == 0 && major > 0 && size % major == 0, "a dim that cannot be split as its rule says");
  const int64_t minor = size / major;
  size = major;
  type.shape.insert(type.shape.begin() + static_cast<long>(dim) + 1, minor);
  at[tensor] = static_cast<int>(dim) + 1;
}

OpRule SplitDims::rule(const Letters& letters) const {
  OpRule rule = from_letters(call_, letters);
  for (size_t i = 0; i < inputs_.size(); ++i) join(rule.inputs[i], inputs_[i]);
  for (size_t i = 0; i < outputs_.size(); ++i) join(rule.outputs[i], outputs_[i]);
  return rule;
}

}  // namespace spmdx::rules
