// SPDX-License-Identifier: Apache-2.0
// Schedules: each belongs to the tensors of a model, and a step has one.
#include "bridge/recorder/schedules.h"

#include <vector>

#include "base/error.h"
#include "bridge/python/source.h"

namespace spmdx::bridge {
namespace {

std::string described(const Annotation& annotation) {
  const std::string& text = *annotation.schedule;
  const std::string line = source_text(annotation.source);
  return (text.find('\n') == std::string::npos ? "'" + text + "'" : "a table of its own") +
         (line.empty() ? "" : " (at " + line + ")");
}

[[noreturn]] void refuse(const Annotation& one, const Annotation& other) {
  const std::string line = source_text(current_source());
  throw ShardingError((line.empty() ? "" : line + ": ") + "one step uses models of two schedules, " + described(one) +
                      " and " + described(other) +
                      ". Expected one for all stages of a mesh. Give spmdx.nn.pipeline the same schedule for both "
                      "models, or end the step between them by spmdx.mark_step().");
}

}  // namespace

std::shared_ptr<const std::string> schedule_named(const std::string& text) {
  static auto* known = new std::map<std::string, std::weak_ptr<const std::string>>();
  if (text.empty()) return nullptr;
  std::erase_if(*known, [](const auto& entry) { return entry.second.expired(); });
  if (const auto found = known->find(text); found != known->end()) return found->second.lock();
  auto made = std::make_shared<const std::string>(text);
  known->emplace(text, made);
  return made;
}

std::string one_schedule(const std::map<ValueId, Annotation>& said, const Graph& graph) {
  if (said.empty() || !graph.mesh) return "";
  std::vector<bool> read(graph.values.size(), false);
  for (const Node& node : graph.nodes)
    for (const ValueId value : node.inputs) read[value] = true;
  const Annotation* first = nullptr;
  for (const auto& [value, annotation] : said) {
    if (!annotation.schedule || !read[value] || !(*annotation.sharding->mesh == *graph.mesh)) continue;
    if (!first) first = &annotation;
    if (first->schedule != annotation.schedule) refuse(*first, annotation);
  }
  return first ? *first->schedule : "";
}

}  // namespace spmdx::bridge
