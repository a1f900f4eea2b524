// SPDX-License-Identifier: Apache-2.0
// Letters: parses them, and makes their factors with sizes and kinds.
#include "rules/build/letters.h"

#include <map>

#include "base/error.h"
#include "rules/build/fits.h"

namespace spmdx::rules {
namespace {

constexpr char kNoFactor = '_';
// The factors of dims that `*` stands for have the key kStar + their distance from the right; letters are below kStar.
constexpr int kStar = 256;

struct Entry {
  int64_t size = 1;
  char mark = 0;
  bool in_input = false;
  bool missing_in_output = false;
  int index = -1;
};
using Entries = std::map<int, Entry>;

// The keys of the factors of a tensor's dims, -1 for a dim without factor. Notes marks in `entries`.
std::vector<int> keys_of(const std::string& text, const TensorType& type, Entries& entries) {
  size_t letters = 0;
  for (char c : text) letters += std::isalpha(static_cast<unsigned char>(c)) || c == kNoFactor;
  const size_t rank = type.shape.size();
  if (letters > rank && numel(type.shape) == 0) return std::vector<int>(rank, -1);  // not computed, as U of svdvals
  fits(letters <= rank, [&] { return "a rule has more letters (" + text + ") than " + str(type) + " has dims"; });
  std::vector<int> keys;
  size_t last = 0;  // a mark that follows applies to the keys from here on: one letter, or all dims of `*`
  for (char c : text) {
    if (std::isalpha(static_cast<unsigned char>(c)) || c == kNoFactor) {
      last = keys.size();
      keys.push_back(c == kNoFactor ? -1 : c);
    } else if (c == '*') {
      last = keys.size();
      for (size_t left = rank - letters; left > 0; --left) keys.push_back(kStar + static_cast<int>(left));
    } else {
      for (size_t i = last; i < keys.size(); ++i)
        if (keys[i] >= 0) entries[keys[i]].mark = c;
    }
  }
  fits(keys.size() == rank, [&] { return "a rule (" + text + ") does not fit " + str(type); });
  return keys;
}

void note_sizes(const std::vector<int>& keys, const Shape& shape, bool input, Entries& entries) {
  for (size_t d = 0; d < keys.size(); ++d) {
    if (keys[d] < 0) continue;
    Entry& entry = entries[keys[d]];
    if (shape[d] != 1 && (entry.size == 1 || shape[d] > entry.size)) entry.size = shape[d];
    entry.in_input |= input;
  }
}

void note_missing(const std::vector<int>& keys, Entries& entries) {
  for (auto& [key, entry] : entries) {
    bool here = false;
    for (int k : keys) here |= k == key;
    entry.missing_in_output |= !here;
  }
}

Factor factor_of(const Entry& entry, Reduction reduction) {
  switch (entry.mark) {
    case '!':
      return {entry.size, FactorKind::replicate, Reduction::none};
    case '+':
      return {entry.size, FactorKind::composite, Reduction::sum};
    case '^':
      return {entry.size, FactorKind::composite, Reduction::none};
    case '~':
      return {entry.size, FactorKind::composite, Reduction::none, true};
    case '.':
      return {entry.size, FactorKind::pass, Reduction::none};
    default:
      break;
  }
  const bool reduced = entry.in_input && entry.missing_in_output;
  return reduced ? Factor{entry.size, FactorKind::reduce, reduction} : Factor{entry.size};
}

TensorFactors assign(const std::vector<int>& keys, const TensorType& type, bool output, Entries& entries) {
  TensorFactors result(type.shape.size());
  const bool empty = numel(type.shape) == 0;
  for (size_t d = 0; d < keys.size(); ++d) {
    if (keys[d] < 0) continue;
    const Entry& entry = entries[keys[d]];
    const bool same = type.shape[d] == entry.size || (entry.mark == '~' && type.shape[d] != 1);
    fits(same || empty || (type.shape[d] == 1 && !output), [&] {
      return "sizes of one factor differ: " + str(type) + " dim " + std::to_string(d) + " and " +
             std::to_string(entry.size);
    });
    if (same && entry.index >= 0) result[d] = {entry.index};
  }
  return result;
}

}  // namespace

std::vector<std::string> split_tensors(std::string_view part) {
  std::vector<std::string> tensors(1);
  for (char c : part)
    if (c == ',')
      tensors.emplace_back();
    else
      tensors.back() += c;
  return tensors;
}

Letters parse_letters(std::string_view text, const Call& call) {
  const size_t arrow = text.find("->");
  internal_check(arrow != std::string_view::npos, [&] { return "a rule without ->: " + std::string(text); });
  auto split = [](std::string_view part, size_t count) {
    std::vector<std::string> tensors = split_tensors(part);
    fits(tensors.size() >= count || (tensors.size() == 1 && tensors[0].empty() && count == 0),
         [&] { return "a rule for fewer tensors than the call has: " + std::string(part); });
    tensors.resize(count);
    return tensors;
  };
  return {split(text.substr(0, arrow), call.inputs.size()), split(text.substr(arrow + 2), call.outputs.size())};
}

OpRule from_letters(const Call& call, const Letters& letters, Reduction reduction) {
  fits(letters.inputs.size() == call.inputs.size() && letters.outputs.size() == call.outputs.size(),
       [&] { return "a rule does not name every tensor of " + call.op; });
  Entries entries;
  std::vector<std::vector<int>> inputs, outputs;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    inputs.push_back(keys_of(letters.inputs[i], call.inputs[i], entries));
    note_sizes(inputs.back(), call.inputs[i].shape, true, entries);
  }
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    const bool made = produced(call.outputs[i]);
    outputs.push_back(made ? keys_of(letters.outputs[i], call.outputs[i], entries) : std::vector<int>{});
    note_sizes(outputs.back(), call.outputs[i].shape, false, entries);
  }
  for (size_t i = 0; i < call.outputs.size(); ++i)
    if (produced(call.outputs[i])) note_missing(outputs[i], entries);
  OpRule rule;
  for (auto& [key, entry] : entries) {
    if (entry.size == 1) continue;
    entry.index = static_cast<int>(rule.factors.size());
    rule.factors.push_back(factor_of(entry, reduction));
  }
  for (size_t i = 0; i < inputs.size(); ++i) rule.inputs.push_back(assign(inputs[i], call.inputs[i], false, entries));
  for (size_t i = 0; i < outputs.size(); ++i)
    rule.outputs.push_back(assign(outputs[i], call.outputs[i], true, entries));
  return rule;
}

std::string dims(size_t rank, char first, char mark) {
  fits(rank <= 26 && first + static_cast<int>(rank) <= 'z' + 1, "a tensor of more than 26 dims");
  std::string text;
  for (size_t d = 0; d < rank; ++d) {
    text += static_cast<char>(first + static_cast<char>(d));
    if (mark) text += mark;
  }
  return text;
}

}  // namespace spmdx::rules
