// SPDX-License-Identifier: Apache-2.0
// Regroup: the last step that all have agreed on, and the first number that none has used.
#include "bridge/world/regroup.h"

#include <algorithm>
#include <sstream>
#include <tuple>

namespace spmdx::bridge {
namespace {

bool is_behind(const Reached& a, const Reached& b) {
  return std::tie(a.steps.submitted, a.drawn.draw) < std::tie(b.steps.submitted, b.drawn.draw);
}

}  // namespace

std::string text_of(const Reached& reached) {
  std::ostringstream text;
  const Standing& steps = reached.steps;
  text << steps.submitted << ' ' << steps.agreed << ' ' << steps.changed << ' ' << reached.overwrote << ' '
       << reached.drawn.seed << ' ' << reached.drawn.draw;
  return text.str();
}

Reached reached_from(const std::string& text) {
  std::istringstream words(text);
  Reached reached;
  Standing& steps = reached.steps;
  words >> steps.submitted >> steps.agreed >> steps.changed >> reached.overwrote >> reached.drawn.seed >>
      reached.drawn.draw;
  return reached;
}

Resumed resumed(const std::vector<Reached>& all) {
  const Reached& furthest = *std::max_element(all.begin(), all.end(), is_behind);
  Resumed result{all[0].steps.agreed, furthest.steps.submitted, furthest.drawn};
  for (const Reached& one : all) result.agreed = std::min(result.agreed, one.steps.agreed);
  return result;
}

std::string why_tensors_may_differ(const std::vector<Reached>& all) {
  if (std::any_of(all.begin(), all.end(), [](const Reached& one) { return one.overwrote; }))
    return "the step that failed had begun to overwrite tensors, which may now differ between processes.";
  const auto [least, most] = std::minmax_element(
      all.begin(), all.end(), [](const Reached& a, const Reached& b) { return a.steps.changed < b.steps.changed; });
  if (least->steps.changed == most->steps.changed) return {};
  return "step " + std::to_string(most->steps.changed - 1) + " ran to its end in process " +
         std::to_string(most - all.begin()) + " and not in process " + std::to_string(least - all.begin()) +
         ", so that tensors that it changed now differ between them.";
}

}  // namespace spmdx::bridge
