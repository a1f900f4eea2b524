// SPDX-License-Identifier: Apache-2.0
// Factors written as letters: one string per tensor, one letter per dim, marks after a letter say its kind.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "rules/rule/rule.h"

namespace spmdx::rules {

// A letter is a factor, `*` the remaining dims (aligned at the right over all tensors), `_` a dim without factor.
// Marks, once anywhere: `!` replicate, `.` pass, `+` composite that ends in a sum, `^` composite that exchanges rows,
// `~` the same for dims of different sizes, which are cut alike.
// An unmarked factor that an input has and a produced output lacks is reduced; all others pass.
struct Letters {
  std::vector<std::string> inputs;
  std::vector<std::string> outputs;
};

// "mk,kn" → "mk" and "kn".
std::vector<std::string> split_tensors(std::string_view part);

// Splits "mk,kn->mn". Tensors beyond those the call has are dropped, so trailing optional operands may be absent.
Letters parse_letters(std::string_view text, const Call& call);

// Dims of size 1 get no factor: they broadcast, and are never cut. Throws DoesNotFit where sizes disagree.
OpRule from_letters(const Call& call, const Letters& letters, Reduction reduction = Reduction::sum);

// "abc…" for `rank` dims from `first`, with `mark` after every letter unless it is 0.
std::string dims(size_t rank, char first = 'a', char mark = 0);

// Whether the op makes this output at all (a masked-out gradient has no dtype).
inline bool produced(const TensorType& type) { return type.dtype != DType::unknown; }

}  // namespace spmdx::rules
