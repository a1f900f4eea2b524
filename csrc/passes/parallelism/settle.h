// SPDX-License-Identifier: Apache-2.0
// Settle: one option for each of several choices, by trying.
#pragma once
#include <cstddef>
#include <functional>
#include <vector>

namespace spmdx {

using Options = std::vector<size_t>;  // by choice: the option that is taken
using CostOfOptions = std::function<double(const Options&)>;

// All combinations where there are few; else from each of the best starts, one choice after the other takes its best
// option while the others stay, until a round changes nothing. Of equal costs the first one stays.
Options settle(const std::vector<size_t>& num_options, const std::vector<Options>& starts, const CostOfOptions& cost);

}  // namespace spmdx
