// SPDX-License-Identifier: Apache-2.0
// Settle: exhaustive, or coordinate descent.
#include "passes/parallelism/settle.h"

#include <algorithm>

#include "base/error.h"

namespace spmdx {
namespace {

constexpr size_t kMostTried = 81;    // combinations that are all tried: four weights, whole or cut on either dim
constexpr int kRoundsOfDescent = 4;  // two settle nearly always

size_t combinations(const std::vector<size_t>& num_options) {
  size_t all = 1;
  for (size_t n : num_options)
    if ((all *= n) > kMostTried) break;
  return all;
}

// The next combination, of which the last choice turns fastest; false after the last one.
bool advance(Options& options, const std::vector<size_t>& num_options) {
  for (size_t i = options.size(); i-- > 0; options[i] = 0)
    if (++options[i] < num_options[i]) return true;
  return false;
}

Options best_of_all(const std::vector<size_t>& num_options, const CostOfOptions& cost) {
  Options options(num_options.size(), 0), best = options;
  double least = cost(options);
  while (advance(options, num_options))
    if (const double now = cost(options); now < least) least = now, best = options;
  return best;
}

struct Tried {
  double cost;
  Options options;
};

Tried descend(const std::vector<size_t>& num_options, Tried at, const CostOfOptions& cost) {
  bool changed = true;
  for (int round = 0; changed && round < kRoundsOfDescent; ++round) {
    changed = false;
    for (size_t choice = 0; choice < num_options.size(); ++choice) {
      Options tried = at.options;
      for (size_t option = 0; option < num_options[choice]; ++option) {
        if (option == at.options[choice]) continue;
        tried[choice] = option;
        if (const double now = cost(tried); now < at.cost) at = {now, tried}, changed = true;
      }
    }
  }
  return at;
}

}  // namespace

Options settle(const std::vector<size_t>& num_options, const std::vector<Options>& starts, size_t descents,
               const CostOfOptions& cost) {
  if (descents && combinations(num_options) <= kMostTried) return best_of_all(num_options, cost);
  internal_check(!starts.empty(), "no options to start from");
  std::vector<Tried> tried;
  for (const Options& start : starts) tried.push_back({cost(start), start});
  std::ranges::stable_sort(tried, {}, &Tried::cost);
  for (size_t i = 0; i < std::min(descents, tried.size()); ++i) tried[i] = descend(num_options, tried[i], cost);
  return std::ranges::min_element(tried, {}, &Tried::cost)->options;
}

}  // namespace spmdx
