// SPDX-License-Identifier: Apache-2.0
// Site: arguments as operands of stages.
#include "emit/hls/rows/site.h"

#include "base/error.h"

namespace spmdx::emit::hls {

void refuse(const Site& site, const std::string& why) {
  throw ShardingError(site.op() + " is not written for HLS: " + why +
                      ". Expected an op that docs/hls.md names. Leave it to another compiler.");
}

Operand Site::tensor(size_t arg) const {
  const int found = operand(call(), arg);
  if (found < 0) refuse(*this, "argument " + std::to_string(arg) + " is no tensor");
  return values.at(node.inputs[found]);
}

Operand Site::in(size_t arg, Elem elem, const Shape& shape) const {
  if (has_tensor(arg)) return broadcast(design, tensor(arg), shape);
  const Arg& given = argument(call(), arg);
  if (!std::holds_alternative<bool>(given) && !std::holds_alternative<int64_t>(given) &&
      !std::holds_alternative<double>(given))
    refuse(*this, "argument " + std::to_string(arg) + " is neither a tensor nor a number");
  return splat_of(elem, shape, real(call(), arg, 0));
}

std::vector<Operand> Site::tensors(size_t arg) const {
  const auto* list = std::get_if<TensorListArg>(&argument(call(), arg));
  if (!list) refuse(*this, "argument " + std::to_string(arg) + " is no list of tensors");
  std::vector<Operand> found;
  for (const uint32_t input : list->inputs) found.push_back(input == kNone ? Operand{} : values.at(node.inputs[input]));
  return found;
}

std::vector<int64_t> Site::list(size_t arg, size_t length, int64_t missing) const {
  const std::vector<int64_t> given = integers(call(), arg);
  if (given.empty()) return std::vector<int64_t>(length, missing);
  return given.size() == 1 ? std::vector<int64_t>(length, given[0]) : given;
}

Stage stage_of(const Site& site) {
  Stage stage;
  stage.op = site.op();
  return stage;
}

uint32_t result_stream(Site& site, Elem elem, size_t result) {
  const auto place = static_cast<uint32_t>(site.design.stages.size());
  return site.design.add_stream(elem, site.result(result).shape, place);
}

}  // namespace spmdx::emit::hls
