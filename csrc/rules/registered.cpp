// SPDX-License-Identifier: Apache-2.0
// Registered rules: each is checked when it is registered, and then kept for the life of the process.
#include "rules/registered.h"

#include <algorithm>
#include <cctype>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "base/error.h"
#include "rules/build/letters.h"
#include "rules/known_rules.h"

namespace spmdx::rules {
namespace {

struct Entry {
  RegisteredRule rule;
  Row row;  // its string_views refer to the strings of `rule`
};
// An entry that was replaced is kept, because another thread may still read it: a step may look rules up while the
// program registers a new one.
struct Registered {
  std::mutex mutex;
  std::map<std::string, Entry*, std::less<>> entries;
  std::vector<std::unique_ptr<Entry>> kept;
};
Registered& registered() {
  static auto* instance = new Registered;
  return *instance;
}

[[noreturn]] void refuse(const RegisteredRule& rule, const std::string& why, const std::string& mend) {
  throw ShardingError("the rule '" + rule.letters + "' of " + rule.op + " " + why +
                      ". Expected one as 'bs,s->b': a letter for each dim of each tensor operand and result. " + mend);
}

bool is_letter(char c) { return std::isalpha(static_cast<unsigned char>(c)); }

void check_tensor(const RegisteredRule& rule, const std::string& text) {
  std::set<char> seen;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (!is_letter(c) && std::string_view("*_!.").find(c) == std::string_view::npos)
      refuse(rule, std::string("has a '") + c + "'",
             "Use letters, * for all other dims, _ for a dim of its own, and ! "
             "or . behind a letter.");
    if ((c == '!' || c == '.') && (i == 0 || !(is_letter(text[i - 1]) || text[i - 1] == '*')))
      refuse(rule, std::string("has a '") + c + "' behind no letter", "Write it behind the letter that it marks.");
    if ((is_letter(c) || c == '*') && !seen.insert(c).second)
      refuse(rule, std::string("names '") + c + "' twice in one tensor", "Give every dim a letter of its own.");
  }
}

// Refuses a result dim that no operand has and that might be cut: a kernel on shards would make it in its global size.
void check_new_dims(const RegisteredRule& rule, const std::string& operands, const std::string& results) {
  for (size_t i = 0; i < results.size(); ++i) {
    const char c = results[i];
    if (!is_letter(c) || operands.find(c) != std::string::npos) continue;
    if (rule.letters.find(std::string{c} + "!") == std::string::npos)
      refuse(rule, std::string("has a result dim '") + c + "' that no operand has",
             std::string("Write ") + c + "! or _: it is not to be cut.");
  }
}

void check(const RegisteredRule& rule, int operands, int results) {
  const size_t arrow = rule.letters.find("->");
  if (arrow == std::string::npos) refuse(rule, "has no ->", "Write the operands, then ->, then the results.");
  const std::string left = rule.letters.substr(0, arrow), right = rule.letters.substr(arrow + 2);
  const auto count = [&](const std::string& part, int expected, const char* what) {
    const std::vector<std::string> tensors = split_tensors(part);
    for (const std::string& tensor : tensors) check_tensor(rule, tensor);
    if (expected >= 0 && static_cast<int>(tensors.size()) != expected)
      refuse(rule, "is for " + std::to_string(tensors.size()) + " " + what + ", the op has " + std::to_string(expected),
             "Name them all, those that may be absent too.");
  };
  count(left, operands, "tensor operands");
  count(right, results, "tensor results");
  check_new_dims(rule, left, right);
}

}  // namespace

void register_rule(RegisteredRule rule, int operands, int results) {
  std::erase(rule.letters, ' ');
  if (find_row(rule.op))
    throw ShardingError(rule.op +
                        " has a rule in spmdx's own table. Expected an op without one. Register rules for ops of your "
                        "own, and report a rule of the table that is wrong or missing.");
  check(rule, operands, results);
  auto entry = std::make_unique<Entry>(Entry{std::move(rule), {}});
  entry->row = {.op = entry->rule.op,
                .letters = entry->rule.letters,
                .reduction = entry->rule.reduction,
                .linearity = entry->rule.linearity,
                .linear_inputs = entry->rule.linear_inputs,
                .flops = entry->rule.flops,
                .registered = true};
  Registered& all = registered();
  {
    const std::lock_guard lock(all.mutex);
    all.entries[entry->rule.op] = entry.get();
    all.kept.push_back(std::move(entry));
  }
  forget_rules();
}

const Row* find_registered(std::string_view op) {
  Registered& all = registered();
  const std::lock_guard lock(all.mutex);
  const auto found = find_named(all.entries, op);
  return found == all.entries.end() ? nullptr : &found->second->row;
}

}  // namespace spmdx::rules
