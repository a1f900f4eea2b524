// SPDX-License-Identifier: Apache-2.0
// Overrides: changed rows by op, kept for the life of the process.
#include "rules/override.h"

#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <sstream>

#include "base/error.h"
#include "rules/known_rules.h"

namespace spmdx::rules {
namespace {

struct Override {
  std::string op, letters;  // own the text that the string_views in `row` refer to
  Row row;
  std::string reduced, composite;
};
using Overrides = std::map<std::string, std::unique_ptr<Override>, std::less<>>;

// Needs no lock: only tests change it, and no other thread plans or runs a program at that moment.
Overrides& overrides() {
  static Overrides rows;
  return rows;
}

bool allowed() {
  static const bool set = std::getenv("SPMDX_TEST_RULES") != nullptr;
  return set;
}

const Override* find(std::string_view op) {
  const Overrides& known = overrides();
  if (known.empty()) return nullptr;
  const auto found = find_named(known, op);
  return found == known.end() ? nullptr : found->second.get();
}

using Setter = std::function<void(Override&, const std::string& value)>;
const std::map<std::string, Setter> kFields = {
    {"letters",
     [](Override& changed, const std::string& value) {
       changed.letters = value;
       changed.row.letters = changed.letters;
       changed.row.family = nullptr;
     }},
    {"linearity", [](Override& changed, const std::string& value) { changed.row.linearity = parse_linearity(value); }},
    {"operands", [](Override& changed, const std::string& value) { changed.row.linear_inputs = std::stoull(value); }},
    {"localise", [](Override& changed, const std::string&) { changed.row.localise = nullptr; }},
    {"expand", [](Override& changed, const std::string&) { changed.row.expand = nullptr; }},
    {"reduced", [](Override& changed, const std::string& value) { changed.reduced = value; }},
    {"composite", [](Override& changed, const std::string& value) { changed.composite = value; }},
};

void change(Override& changed, const std::string& word) {
  const size_t sign = word.find('=');
  const auto field = kFields.find(word.substr(0, sign));
  if (field == kFields.end() || sign == word.npos)
    throw ShardingError("'" + word + "' changes nothing of a rule. Expected field=value, as letters=*->*.");
  field->second(changed, word.substr(sign + 1));
}

}  // namespace

void override_rule(const std::string& op, const std::string& changes) {
  if (!allowed())
    throw ShardingError(
        "rules are not to be changed. Expected a test of rules. Set SPMDX_TEST_RULES before the process starts.");
  forget_rules();
  overrides().erase(op);
  if (changes.empty()) return;
  auto changed = std::make_unique<Override>();
  changed->op = op;
  if (const Row* row = find_row(op)) changed->row = *row;
  changed->row.op = changed->op;
  std::istringstream words(changes);
  for (std::string word; words >> word;) change(*changed, word);
  overrides()[op] = std::move(changed);
}

const Row* find_override(std::string_view op) {
  const Override* changed = find(op);
  return changed ? &changed->row : nullptr;
}

void adjust_factors(const Call& call, OpRule& rule) {
  const Override* changed = find(call.op);
  if (!changed) return;
  for (Factor& factor : rule.factors) {
    if (factor.kind == FactorKind::reduce && !changed->reduced.empty()) {
      if (changed->reduced == "pass")
        factor = {factor.size};
      else
        factor.reduction = Reduction::max;
    }
    if (factor.kind == FactorKind::composite && !changed->composite.empty())
      factor =
          changed->composite == "pass" ? Factor{factor.size} : Factor{factor.size, FactorKind::reduce, Reduction::sum};
  }
}

}  // namespace spmdx::rules
