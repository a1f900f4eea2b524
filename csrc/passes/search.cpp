// SPDX-License-Identifier: Apache-2.0
#include "passes/search.h"

#include "passes/residence.h"

namespace spmdx {
namespace {

std::unique_ptr<const Assignment> search(const Graph& graph, const CompileOptions& options,
                                         const std::vector<bool>& fleeting) {
  auto assignment = std::make_unique<Assignment>(graph, options, fleeting);
  choose_greedily(*assignment);
  improve(*assignment);
  return assignment;
}

}  // namespace

std::unique_ptr<const Assignment> decide(const Graph& graph, const CompileOptions& options) {
  std::vector<bool> fleeting = fleeting_values(graph);
  if (options.gather_budget == kNoLimit) fleeting.assign(fleeting.size(), false);
  auto assignment = search(graph, options, fleeting);
  if (options.gather_budget == 0 || options.gather_budget == kNoLimit) return assignment;
  const std::vector<bool> before = fleeting;
  keep_within(options.gather_budget, *assignment, fleeting);
  return fleeting == before ? std::move(assignment) : search(graph, options, fleeting);
}

}  // namespace spmdx
