// SPDX-License-Identifier: Apache-2.0
// Improve: a population whose members tabu search makes better (as Peng, Lü and Cheng 2015 for job shops,
// doi:10.1016/j.cor.2014.08.006); some of each child's tasks have the devices of one parent, some those of another.
#include "passes/kinds/search/improve.h"

#include <algorithm>
#include <array>

#include "passes/kinds/exact.h"
#include "passes/kinds/search/dive.h"
#include "passes/kinds/search/late.h"
#include "passes/kinds/search/tabu.h"

namespace spmdx {
namespace {

constexpr int64_t kVisits = 2'000'000;        // tasks looked at, for each task that there is
constexpr int64_t kMostVisits = 150'000'000;  // of all together
constexpr int64_t kLeastVisits = 300'000;     // for each task where that is more
constexpr int64_t kMostCounted = 500;         // tasks
constexpr int64_t kFewVisits = 15'000;        // for each, where branch and bound ends the search
constexpr int64_t kTightVisits = 2;           // times as many for each population where memory binds
constexpr int kTightGenerations = 2;          // of populations there
constexpr int kTightPopulations = 3;          // in each, whose bests are the members of one more
constexpr int64_t kFirstShare = 40;           // percent of all for the first members
constexpr int64_t kLateShare = 5;             // percent of a member's that late acceptance looks at
constexpr int64_t kTightLateShare = 50;       // the same where memory binds: it looks at what does not fit too
constexpr int64_t kVisitsOfAMember = 40'000;  // for each task, at least
constexpr int64_t kVisitsOfAChild = 12'000;   // for each task
constexpr int64_t kMinMembers = 3;
constexpr int64_t kMaxMembers = 12;
constexpr int kMutations = 4;                         // moves of groups, where both parents are the same
constexpr int64_t kChildrenOfADive = 6;               // before the next dive
constexpr int64_t kDiveShare = 32;                    // a dive looks at so small a part of what children do
constexpr uint32_t kMostInDives = 400;                // tasks
constexpr std::array<int64_t, 3> kAims{20, 50, 200};  // of a time shorter by so small a part, until there is none

int64_t counted_tasks(const TaskGraph& graph) { return std::min<int64_t>(graph.tasks(), kMostCounted); }

int64_t visits_of_all(const TaskGraph& graph) {
  const int64_t counted = counted_tasks(graph);
  if (counted <= static_cast<int64_t>(kMostExact)) return counted * kFewVisits;
  return std::max(std::min(counted * kVisits, kMostVisits), counted * kLeastVisits);
}

// Whether some device cannot hold all that it could run.
bool memory_binds(const TaskGraph& graph) {
  for (uint32_t d = 0; d < graph.devices(); ++d) {
    std::vector<uint32_t> all;
    for (uint32_t j = 0; j < graph.tasks(); ++j)
      if (graph.runs(j, d)) all.push_back(j);
    if (graph.bytes_together(all) > graph.memory(d)) return true;
  }
  return false;
}

const FoundSequences& shortest_of(const std::vector<FoundSequences>& found) {
  return *std::ranges::min_element(found, {}, &FoundSequences::ns);
}

class Population {
 public:
  explicit Population(const TaskGraph& graph) : graph_(graph), groups_(graph) {
    if (graph.tasks() <= kMostInDives) ancestors_ = task_ancestors(graph);
  }

  // `late_share`: percent of a member's visits that late acceptance takes.
  FoundSequences run(const std::vector<TaskSequences>& starts, int64_t visits, int64_t late_share) {
    const int64_t first = visits * kFirstShare / 100;
    return breed(first_members(starts, first, late_share), visits - first);
  }
  // What comes of children of these members, and of theirs.
  FoundSequences breed(std::vector<FoundSequences> members, int64_t visits) {
    members_ = std::move(members);
    child_visits_ = counted_tasks(graph_) * kVisitsOfAChild;
    dive_visits_ = visits / kDiveShare;
    for (int64_t child = 0; visits >= child_visits_ && !groups_.nothing_below(); ++child)
      visits -= child % kChildrenOfADive == 0 && !ancestors_.empty() ? dive_below_best() : bear();
    return best();
  }
  bool nothing_below() const { return groups_.nothing_below(); }

 private:
  const FoundSequences& best() const { return shortest_of(members_); }
  const FoundSequences& any_member() { return members_[static_cast<size_t>(groups_.next_random()) % members_.size()]; }
  static std::vector<uint32_t> order_in(const TaskGraph& graph, const FoundSequences& member) {
    TaskTimes times;
    times.run(graph, member.sequences);
    return times.by_start();
  }

  // Each start, after a walk and a search.
  std::vector<FoundSequences> first_members(const std::vector<TaskSequences>& starts, int64_t visits,
                                            int64_t late_share) {
    const int64_t of_each = counted_tasks(graph_) * kVisitsOfAMember;
    const int64_t wanted = std::clamp(visits / (of_each + 1), kMinMembers, kMaxMembers);
    const size_t size = std::min(static_cast<size_t>(wanted), starts.size());
    const int64_t each = visits / static_cast<int64_t>(size), late = each * late_share / 100;
    std::vector<FoundSequences> members;
    for (size_t i = 0; i < size && !(i && groups_.nothing_below()); ++i)
      members.push_back(search_tabu(graph_, accept_late(graph_, starts[i], groups_, late), groups_, each - late));
    return members;
  }

  // As all below: what it looks at.
  int64_t bear() {
    const FoundSequences &one = any_member(), &other = any_member();
    const std::vector<uint32_t> order = order_in(graph_, one);
    std::vector<uint32_t> device = one.sequences.device;
    if (&one == &other)
      for (int i = 0; i < kMutations; ++i) groups_.move(device, order);
    else
      mix(device, other.sequences.device, order);
    if (groups_.make_room(device, std::vector<bool>(graph_.tasks(), false))) raise(device, order);
    return child_visits_;
  }

  // Tasks of some time, all from some time on, or any, have the other one's devices.
  void mix(std::vector<uint32_t>& device, const std::vector<uint32_t>& other, const std::vector<uint32_t>& order) {
    const int64_t way = groups_.next_random() % 3;
    const size_t from = groups_.any_task();
    const size_t some = 1 + static_cast<size_t>(groups_.next_random()) % (order.size() - from);
    const size_t until = way == 0 ? from + some : order.size();
    for (size_t at = 0; at < order.size(); ++at) {
      const bool is_others = way == 2 ? groups_.next_random() % 2 == 0 : at >= from && at < until;
      if (is_others) device[order[at]] = other[order[at]];
    }
  }

  int64_t dive_below_best() {
    const int64_t ns = best().ns - best().ns / kAims[aim_];
    int64_t seen = 0;
    const auto found = dive({graph_, ancestors_, ns, any_member().sequences.device, dive_visits_}, groups_, seen);
    if (!found && seen <= dive_visits_) aim_ = std::min(aim_ + 1, kAims.size() - 1);  // there is none
    if (!found) return seen;
    raise(*found, order_in(graph_, best()));
    return seen + child_visits_;
  }

  // A child takes the place of the worst member, where it is better and nobody's twin.
  void raise(const std::vector<uint32_t>& device, const std::vector<uint32_t>& order) {
    FoundSequences child = search_tabu(graph_, TaskSequences(graph_, device, order), groups_, child_visits_);
    const bool is_twin = std::ranges::any_of(members_, [&](const FoundSequences& member) {
      return member.ns == child.ns && member.sequences.device == child.sequences.device;
    });
    const auto worst = std::ranges::max_element(members_, {}, &FoundSequences::ns);
    if (!is_twin && child.ns < worst->ns) *worst = std::move(child);
  }

  const TaskGraph& graph_;
  GroupMoves groups_;
  TaskAncestors ancestors_;  // empty: too many tasks for dives
  std::vector<FoundSequences> members_;
  int64_t child_visits_ = 0, dive_visits_ = 0;
  size_t aim_ = 0;
};

}  // namespace

TaskSequences improve(const TaskGraph& graph, const std::vector<TaskSequences>& starts) {
  if (graph.tasks() == 0) return starts.front();
  const int64_t visits = visits_of_all(graph);
  Population population(graph);
  FoundSequences found = population.run(starts, visits, kLateShare);
  if (graph.tasks() <= kMostExact || !memory_binds(graph)) return found.sequences;
  for (int generation = 0; generation < kTightGenerations; ++generation) {
    std::vector<FoundSequences> bests{found};
    for (int i = 0; i < kTightPopulations; ++i) {
      bests.push_back(population.run(starts, visits * kTightVisits, kTightLateShare));
      const bool agrees = i == 0 && bests.back().ns == found.ns;  // then there is hardly a shorter one
      if (agrees || population.nothing_below()) return shortest_of(bests).sequences;
    }
    found = population.breed(std::move(bests), visits * kTightVisits);
  }
  return found.sequences;
}

}  // namespace spmdx
