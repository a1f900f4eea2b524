// SPDX-License-Identifier: Apache-2.0
// Acted dims: text of letters in which acted dims are marked, renamed or left out.
#include "rules/build/acted_dims.h"

#include <algorithm>

#include "graph/args.h"
#include "rules/build/fits.h"
#include "rules/build/letters.h"
#include "rules/rule/row.h"

namespace spmdx::rules {

size_t rank_of(const Call& call) { return call.inputs.at(0).shape.size(); }

std::vector<bool> only(size_t dim, size_t rank) {
  std::vector<bool> acted(rank, false);
  if (rank > 0) acted.at(dim) = true;
  return acted;
}

size_t dim_of(const Call& call, size_t arg, size_t rank, int64_t missing) {
  return static_cast<size_t>(normal_dim(integer(call, arg, missing), rank));
}

std::string marked(const std::vector<bool>& acted, char mark) {
  std::string text;
  for (size_t d = 0; d < acted.size(); ++d) {
    text += static_cast<char>('a' + static_cast<char>(d));
    if (acted[d]) text += mark;
  }
  return text;
}

std::string resized(const std::vector<bool>& acted, char tensor) {
  std::string text;
  for (size_t d = 0; d < acted.size(); ++d) {
    if (acted[d])
      text += {tensor, '!'};
    else
      text += static_cast<char>('a' + static_cast<char>(d));
    tensor = static_cast<char>(tensor + acted[d]);
  }
  return text;
}

std::pair<std::string, std::string> with_and_without(size_t dim, size_t rank) {
  const std::string big = marked(only(dim, rank));
  std::string small = dims(rank);
  small.erase(dim, 1);
  return {big, small};
}

OpRule resize_dims(const Call& call, const std::vector<bool>& acted) {
  Letters letters;
  const auto count = static_cast<size_t>(std::count(acted.begin(), acted.end(), true));
  fits(count * (call.inputs.size() + call.outputs.size()) <= 26, "too many dims of " + call.op);
  char tensor = 'A';
  for (size_t i = 0; i < call.inputs.size() + call.outputs.size(); ++i) {
    (i < call.inputs.size() ? letters.inputs : letters.outputs).push_back(resized(acted, tensor));
    tensor = static_cast<char>(tensor + static_cast<char>(count));
  }
  return from_letters(call, letters);
}

OpRule whole_dims(const Call& call, const std::vector<bool>& acted) {
  const std::string text = marked(acted);
  return from_letters(
      call, {std::vector<std::string>(call.inputs.size(), text), std::vector<std::string>(call.outputs.size(), text)});
}

OpRule one_whole_dim(const Call& call) {
  const size_t rank = rank_of(call);
  return whole_dims(call, only(dim_of(call, row_of(call).arg, rank, -1), rank));
}

}  // namespace spmdx::rules
