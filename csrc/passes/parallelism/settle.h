// SPDX-License-Identifier: Apache-2.0
// Settle: one option for each of several choices, by trying.
#pragma once
#include <cstddef>
#include <functional>
#include <vector>

namespace spmdx {

using Options = std::vector<size_t>;  // by choice: the option that is taken
using CostOfOptions = std::function<double(const Options&)>;

// All combinations where there are few; else from so many of the starts, the best ones, one choice after the other
// takes its best option while the others stay, until a round changes nothing; without descents the best start. Of equal
// costs the first one stays.
Options settle(const std::vector<size_t>& num_options, const std::vector<Options>& starts, size_t descents,
               const CostOfOptions& cost);

}  // namespace spmdx
