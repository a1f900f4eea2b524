// SPDX-License-Identifier: Apache-2.0
// Calls, rules and expansions as text.
#include "rules/rule_text.h"

#include <map>

#include "check.h"
#include "graph/text.h"
#include "rules/build/builder.h"
#include "rules/lookup.h"

namespace spmdx::test {

namespace {

char mark_of(const Factor& factor) {
  switch (factor.kind) {
    case FactorKind::replicate:
      return '!';
    case FactorKind::composite:
      return factor.reduction == Reduction::sum ? '+' : '^';
    case FactorKind::reduce:
      return factor.reduction == Reduction::sum ? '/' : factor.reduction == Reduction::max ? '>' : '?';
    default:
      return 0;
  }
}

}  // namespace

Program program(const std::string& inputs, const std::string& results, const std::string& op) {
  std::string text;
  int next = 0;
  auto each = [&](const std::string& list, auto&& add) {
    for (size_t at = 0; at < list.size();) {
      const size_t end = std::min(list.find("; ", at), list.size());
      add(list.substr(at, end - at));
      at = end + 2;
    }
  };
  each(inputs, [&](const std::string& type) { text += "%" + std::to_string(next++) + " = input " + type + "\n"; });
  std::string outputs;
  each(results, [&](const std::string& type) {
    outputs += (outputs.empty() ? "%" : ", %") + std::to_string(next++) + " : " + type;
  });
  text += outputs + " = " + op + "\n";
  Program result{parse_graph(text), {}, nullptr};
  result.node = result.graph.nodes.at(0);
  result.rule = rule_for(result.node.call);
  return result;
}

std::string letters(const OpRule& rule) {
  std::map<int, char> names;
  auto tensor = [&](const TensorFactors& dims) {
    std::string text;
    for (const std::vector<int>& dim : dims) {
      if (dim.empty()) text += '_';
      if (dim.size() > 1) text += '(';
      for (int f : dim) {
        text += names.emplace(f, static_cast<char>('a' + static_cast<int>(names.size()))).first->second;
        if (char mark = mark_of(rule.factors[static_cast<size_t>(f)])) text += mark;
      }
      if (dim.size() > 1) text += ')';
    }
    return text;
  };
  std::string text;
  for (size_t i = 0; i < rule.inputs.size(); ++i) text += (i ? "," : "") + tensor(rule.inputs[i]);
  text += "->";
  for (size_t i = 0; i < rule.outputs.size(); ++i) text += (i ? "," : "") + tensor(rule.outputs[i]);
  return text;
}

std::string rule_of(const std::string& inputs, const std::string& results, const std::string& op) {
  const Program p = program(inputs, results, op);
  return (p.rule->fallback ? "fallback " : "") + letters(*p.rule);
}

std::string expansion(const std::string& inputs, const std::string& results, const std::string& op) {
  Program p = program(inputs, results, op);
  CHECK(p.rule->expand != nullptr && !p.rule->fallback);
  Builder builder(p.graph, 0);
  const std::vector<ValueId> values = p.rule->expand(builder, p.node);
  CHECK_EQ(values.size(), p.node.call->outputs.size());
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] == kNone) continue;
    const TensorType &made = p.graph.value(values[i]).type, &wanted = p.node.call->outputs[i];
    CHECK_EQ(str(made), str(wanted));
  }
  std::string ops;
  for (size_t i = 1; i < p.graph.nodes.size(); ++i) {
    const CallRef& call = p.graph.nodes[i].call;
    CHECK(!rule_for(call)->fallback);
    ops += (ops.empty() ? "" : " ") + call->op.substr(call->op.find('.') + 1);
  }
  return ops;
}

}  // namespace spmdx::test
