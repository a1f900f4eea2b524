// SPDX-License-Identifier: Apache-2.0
// Programs of one op from text, their rules and expansions as text.
#pragma once
#include "graph/graph.h"
#include "rules/rule/rule.h"

namespace spmdx::test {

struct Program {
  Graph graph;
  Node node;
  OpRuleRef rule;
};

// "f32[4, 6]; f32[6, 8]" and "f32[4, 8] = aten.mm(%0, %1)"; results are numbered after the operands.
Program program(const std::string& inputs, const std::string& results, const std::string& op);
// "ab/,b/c->ac": factors named in order of first use, `_` a dim without, parentheses around several.
std::string letters(const OpRule& rule);
std::string rule_of(const std::string& inputs, const std::string& results, const std::string& op);
// Expands a node, checks result types and that every op in it has a rule; returns the ops, joined by blanks.
std::string expansion(const std::string& inputs, const std::string& results, const std::string& op);

}  // namespace spmdx::test
