// SPDX-License-Identifier: Apache-2.0
// Repeats: plans by the program that they are of, which is its ops and their wiring without shapes and numbers.
#include "runtime/step/repeats.h"

#include <algorithm>
#include <functional>
#include <tuple>

#include "graph/text.h"

namespace spmdx {
namespace {

constexpr size_t kShown = 4;  // values

uint64_t program_of(const Graph& graph) {
  uint64_t h = wiring_hash(graph);
  for (const Input& input : graph.inputs)
    h = hash_combine(h, static_cast<uint64_t>(graph.value(input.value).type.dtype));
  return h;
}

const Node* reader_of(const Graph& graph, ValueId value) {
  for (const Node& node : graph.nodes)
    if (std::find(node.inputs.begin(), node.inputs.end(), value) != node.inputs.end()) return &node;
  return nullptr;
}

// Of the inputs that change, the one that is most likely data of the program: no state, of few bytes.
size_t most_telling(const Graph& graph, const std::vector<bool>& varies) {
  const auto rank = [&](size_t i) {
    return std::make_tuple(!varies[i], graph.inputs[i].state, graph.value(graph.inputs[i].value).type.bytes());
  };
  size_t best = 0;
  for (size_t i = 1; i < varies.size(); ++i)
    if (rank(i) < rank(best)) best = i;
  return best;
}

// One part of one tensor that is read here and there.
bool is_planned_in_no_time(const Graph& graph) {
  return graph.nodes.empty() || (graph.nodes.size() == 1 && graph.nodes[0].inputs.size() < 2);
}

// The op with its arguments: "slice(%0, 0, 3, 5, 1)" in full
std::string text_of_call(const Node& node, const Graph& graph) {
  const std::string text = print(node, graph);
  return text.substr(text.find(" = ") + 3);
}

}  // namespace

void Repeats::compare(Family& family, const Graph& traced) {
  const bool first = family.plans == 0;
  family.varies.resize(traced.inputs.size(), false);
  std::vector<Shape> inputs;
  for (const Input& input : traced.inputs) inputs.push_back(traced.value(input.value).type.shape);
  std::vector<CallRef> calls;
  for (const Node& node : traced.nodes) calls.push_back(node.call);
  for (size_t i = 0; i < inputs.size() && !first; ++i)
    if (inputs[i] != family.inputs[i]) family.varies[i] = true;
  for (size_t n = 0; n < calls.size() && !first && !family.node; ++n)
    if (!(*calls[n] == *family.calls[n])) family.node = n;
  family.inputs = std::move(inputs);
  family.calls = std::move(calls);
}

std::optional<Repeat> Repeats::note(const Graph& traced, int64_t planning_ns) {
  if (is_planned_in_no_time(traced)) return std::nullopt;
  const uint64_t program = program_of(traced);
  if (families_.size() >= kFamilies && !families_.contains(program)) families_.clear();
  Family& family = families_[program];
  compare(family, traced);
  ++family.plans;
  family.planning_ns += planning_ns;
  const bool any = std::find(family.varies.begin(), family.varies.end(), true) != family.varies.end();
  if (!any && !family.node) return std::nullopt;
  const size_t input = any ? most_telling(traced, family.varies) : 0;
  const Node* node = any ? reader_of(traced, traced.inputs[input].value) : &traced.nodes[*family.node];
  if (!node) return std::nullopt;
  std::string value = any ? str(traced.value(traced.inputs[input].value).type) : text_of_call(*node, traced);
  std::vector<std::string>& values = family.values;
  if (values.size() > kMany || std::find(values.begin(), values.end(), value) != values.end()) return std::nullopt;
  values.push_back(std::move(value));
  if (values.size() <= kMany) return std::nullopt;
  return Repeat{node->source, node->call->op,    any, {values.end() - kShown, values.end()},
                family.plans, family.planning_ns};
}

}  // namespace spmdx
