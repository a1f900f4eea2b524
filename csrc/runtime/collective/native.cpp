// SPDX-License-Identifier: Apache-2.0
// Native: targets are sorted by kind and group, and a group is taken where all of its members fit.
#include "runtime/collective/native.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

namespace spmdx {
namespace {

using Group = std::vector<int64_t>;

// The distinct ones, ascending.
Group group_of(std::vector<int64_t> processes) {
  std::sort(processes.begin(), processes.end());
  processes.erase(std::unique(processes.begin(), processes.end()), processes.end());
  return processes;
}

bool same_piece(const BoxCopy& a, const BoxCopy& b) {
  return a.source == b.source && a.box == b.box && a.starts == b.starts;
}

// Both processes would give the same elements, to the same place.
bool same_contribution(const Contribution& a, const Contribution& b) {
  const auto same_summand = [](const Summand& x, const Summand& y) { return std::ranges::equal(x, y, same_piece); };
  return a.provider == b.provider && a.starts == b.starts && std::ranges::equal(a.summands, b.summands, same_summand);
}

bool is_member(const Group& group, int64_t process) { return std::ranges::binary_search(group, process); }

class Finder {
 public:
  Finder(NativeRules rules, Targets& targets) : rules_(rules), targets_(targets) {
    for (const auto& [process, of_it] : targets_)
      for (const auto& [index, target] : of_it) wanted_by_[index].push_back(process);
  }

  std::vector<Native> run(int64_t here) {
    for (const auto& [process, of_it] : targets_)
      for (const auto& [index, target] : of_it) {
        const Group group = group_for(target);
        if (!is_member(group, process)) continue;
        if (const auto kind = kind_of(index, target, group)) calls_[{group, *kind}][process].push_back(index);
      }
    std::vector<Native> natives;
    for (const auto& [key, by_member] : calls_) {
      const auto& [group, kind] = key;
      if (!all_fit(group, kind, by_member)) continue;
      for (const auto& [process, indices] : by_member)
        for (const int64_t index : indices) targets_.at(process).at(index).native = true;
      if (is_member(group, here)) natives.push_back(native_of(here, group, kind, by_member));
    }
    return natives;
  }

 private:
  using Indices = std::vector<int64_t>;
  using ByMember = std::map<int64_t, Indices>;

  static Group group_for(const Target& target) {
    std::vector<int64_t> providers;
    for (const Term& term : target.terms)
      for (const Contribution& contribution : term) providers.push_back(contribution.provider);
    return group_of(std::move(providers));
  }

  // Each term is one contribution, of a process of its own, and as large as the target.
  static bool is_sum_of_processes(const Target& target, const Group& group) {
    return target.terms.size() == group.size() && std::ranges::all_of(target.terms, [&](const Term& term) {
             return term.size() == 1 && term.front().shape == target.shape;
           });
  }

  // How many members want the shard of this index.
  size_t wanted_by(const Group& group, int64_t index) const {
    return static_cast<size_t>(
        std::ranges::count_if(wanted_by_.at(index), [&](int64_t process) { return is_member(group, process); }));
  }

  // What could make this target, if the others of its group agree.
  std::optional<NativeKind> kind_of(int64_t index, const Target& target, const Group& group) const {
    if (target.identity || target.holes || numel(target.shape) == 0 || group.size() < 2) return std::nullopt;
    const size_t wanted = wanted_by(group, index);
    if (target.terms.size() == 1)
      return rules_.gathers && wanted == group.size() ? std::optional(NativeKind::all_gather) : std::nullopt;
    if (!rules_.sums || !is_sum_of_processes(target, group)) return std::nullopt;
    if (wanted == group.size()) return NativeKind::all_reduce;
    return wanted == 1 ? std::optional(NativeKind::reduce_scatter) : std::nullopt;
  }

  bool all_fit(const Group& group, NativeKind kind, const ByMember& by_member) const {
    if (by_member.size() != group.size()) return false;
    const Indices& of_first = by_member.begin()->second;
    for (const auto& [process, indices] : by_member) {
      if (indices.size() != of_first.size()) return false;
      if (kind != NativeKind::reduce_scatter && indices != of_first) return false;
      for (size_t i = 0; i < indices.size(); ++i)
        if (!alike(kind, at(process, indices[i]), at(group.front(), of_first[i]))) return false;
    }
    return kind != NativeKind::all_gather || gives_are_equal(group, of_first);
  }

  // Of two members.
  static bool alike(NativeKind kind, const Target& one, const Target& other) {
    if (kind == NativeKind::reduce_scatter) return numel(one.shape) == numel(other.shape);
    return std::ranges::equal(one.terms, other.terms,
                              [](const Term& a, const Term& b) { return std::ranges::equal(a, b, same_contribution); });
  }

  bool gives_are_equal(const Group& group, const Indices& indices) const {
    std::map<int64_t, int64_t> given;
    for (const int64_t index : indices)
      for (const Contribution& part : at(group.front(), index).terms.front()) given[part.provider] += numel(part.shape);
    return given.size() == group.size() &&
           std::ranges::all_of(given, [&](const auto& one) { return one.second == given.begin()->second; });
  }

  Native native_of(int64_t here, const Group& group, NativeKind kind, const ByMember& by_member) const {
    Native native{kind, group, {}, {}, 0};
    const auto& mine = targets_.at(here);
    for (const int64_t index : by_member.at(here))
      native.targets.push_back(static_cast<size_t>(std::distance(mine.begin(), mine.find(index))));
    const auto give_to = [&](int64_t member) {
      for (const int64_t index : by_member.at(member))
        for (const Term& term : at(member, index).terms)
          for (const Contribution& part : term)
            if (part.provider == here) native.gives.push_back(part);
    };
    if (kind == NativeKind::reduce_scatter)
      for (const int64_t member : group) give_to(member);
    else
      give_to(here);
    for (const Contribution& part : native.gives) native.part += numel(part.shape);
    if (kind == NativeKind::reduce_scatter) native.part /= std::ssize(group);
    return native;
  }

  const Target& at(int64_t process, int64_t index) const { return targets_.at(process).at(index); }

  NativeRules rules_;
  Targets& targets_;
  std::map<int64_t, std::vector<int64_t>> wanted_by_;  // processes, ascending, by index
  std::map<std::pair<Group, NativeKind>, ByMember> calls_;
};

}  // namespace

NativeRules rules_for(NativeRules rules, DType dtype, Reduction reduction) {
  rules.sums &= adds_natively(dtype, reduction);
  return rules;
}

std::vector<Native> find_natives(int64_t here, NativeRules rules, Targets& targets) {
  if (!rules.gathers && !rules.sums) return {};
  return Finder(rules, targets).run(here);
}

}  // namespace spmdx
