// SPDX-License-Identifier: Apache-2.0
// Letters: rules as text. One string per tensor, one letter per dim; a mark after a letter gives the factor's kind.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "rules/rule/rule.h"

namespace spmdx::rules {

// A letter is a factor. `*` stands for all dims that have no letter (aligned at the right over all tensors), `_` for a
// dim without factor. Marks, of which one anywhere in the rule is enough: `!` replicate, `.` pass, `+` composite that
// ends in a sum, `^` composite that exchanges data inside, `~` composite and loose.
// An unmarked factor that an input has and some produced output lacks is a reduce factor; all others pass.
struct Letters {
  std::vector<std::string> inputs;
  std::vector<std::string> outputs;
};

// Splits the text of several tensors at commas: "mk,kn" into "mk" and "kn".
std::vector<std::string> split_tensors(std::string_view part);

// The letters of a text like "mk,kn->mn". Strings beyond the call's number of tensors are dropped, because the last
// operands may be optional. Throws DoesNotFit where there are fewer strings than tensors.
Letters parse_letters(std::string_view text, const Call& call);

// The rule that the letters describe, of which reduce factors get `reduction`. Dims of size 1 get no factor: they
// broadcast, and are never cut. Throws DoesNotFit where dims with one letter have different sizes.
OpRule from_letters(const Call& call, const Letters& letters, Reduction reduction = Reduction::sum);

// `rank` letters in alphabetical order from `first` on, each followed by `mark` if that is not 0.
std::string dims(size_t rank, char first = 'a', char mark = 0);

// Whether the op makes this output. An output that a mask leaves out (a gradient that nobody asked for) has no dtype.
inline bool produced(const TensorType& type) { return type.dtype != DType::unknown; }

}  // namespace spmdx::rules
