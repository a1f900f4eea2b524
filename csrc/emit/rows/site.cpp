// SPDX-License-Identifier: Apache-2.0
// Site: arguments as values of the text.
#include "emit/rows/site.h"

#include <numeric>

#include "base/error.h"

namespace spmdx::emit {

void refuse(const Site& site, const std::string& why) {
  throw ShardingError(site.node.call->op + " is not written as StableHLO: " + why + ".");
}

Tensor Site::tensor(size_t arg) const {
  const int found = operand(call(), arg);
  if (found < 0) refuse(*this, "argument " + std::to_string(arg) + " is no tensor");
  return values.at(node.inputs[found]);
}

Tensor Site::in(size_t arg, const TensorType& type) const {
  if (has_tensor(arg)) return write.broadcast(write.convert(tensor(arg), type.dtype), type.shape);
  const Arg& given = argument(call(), arg);
  if (const auto* flag = std::get_if<bool>(&given)) return write.constant(type, int64_t{*flag});
  if (const auto* whole = std::get_if<int64_t>(&given)) return write.constant(type, *whole);
  if (const auto* number = std::get_if<double>(&given)) return write.constant(type, *number);
  refuse(*this, "argument " + std::to_string(arg) + " is neither a tensor nor a number");
}

std::vector<Tensor> Site::tensors(size_t arg) const {
  std::vector<Tensor> found;
  const auto* list = std::get_if<TensorListArg>(&argument(call(), arg));
  if (!list) refuse(*this, "argument " + std::to_string(arg) + " is no list of tensors");
  for (const uint32_t input : list->inputs) found.push_back(input == kNone ? Tensor{} : values.at(node.inputs[input]));
  return found;
}

std::vector<int64_t> Site::dims(size_t arg, size_t rank) const {
  const std::vector<bool> acted = acted_dims(call(), arg, rank);
  std::vector<int64_t> found;
  for (size_t d = 0; d < rank; ++d)
    if (acted[d]) found.push_back(static_cast<int64_t>(d));
  return found;
}

std::vector<int64_t> Site::list(size_t arg, size_t length, int64_t missing) const {
  const std::vector<int64_t> given = integers(call(), arg);
  if (given.empty()) return std::vector<int64_t>(length, missing);
  return given.size() == 1 ? std::vector<int64_t>(length, given[0]) : given;
}

void Site::require(const Tensor& holds) {
  std::vector<int64_t> dims(holds.type.shape.size());
  std::iota(dims.begin(), dims.end(), 0);
  facts.push_back(write.reduce(holds, write.constant({DType::b8, {}}, int64_t{1}), dims, "and"));
}

}  // namespace spmdx::emit
