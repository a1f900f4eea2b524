// SPDX-License-Identifier: Apache-2.0
// Tabu: search over critical tasks (as Mastrolilli 2000 for flexible job shops,
// doi:10.1002/(SICI)1099-1425(200001/02)3:1<3::AID-JOS32>3.0.CO;2-Y); groups of connected tasks move where that stalls.
#include "passes/kinds/search/tabu.h"

#include <algorithm>

#include "passes/kinds/search/moves.h"

namespace spmdx {
namespace {

constexpr size_t kMostCritical = 24;  // critical tasks that try all places in one step
constexpr int64_t kStall = 5;         // steps without a better makespan, before a group moves
constexpr int64_t kLeastTenure = 4;   // steps in which a task does not go back to its device
constexpr int64_t kExchanges = 4;     // of so many steps one tries exchanges first
constexpr size_t kMates = 4;          // tasks of another device with which one is exchanged
constexpr size_t kGroupMoves = 8;     // tried when the search stalls

class Tabu {
 public:
  Tabu(const TaskGraph& graph, const TaskSequences& start, GroupMoves& groups)
      : graph_(graph), groups_(groups), now_(start), best_(start), tabu_(graph.tasks() * graph.devices(), 0) {
    times_.run(graph, start);
    best_ns_ = times_.ns;
  }

  FoundSequences run(int64_t visits) {
    for (int64_t stalled = 0; visits_ < visits && !groups_.nothing_below(); ++step_) {
      const int64_t before = best_ns_;
      if (stalled >= kStall || !step()) {
        move_a_group();
        stalled = 0;
      }
      stalled = best_ns_ < before ? 0 : stalled + 1;
    }
    return {std::move(best_), best_ns_};
  }

 private:
  // Tasks whose delay delays the end; of many, some all along the way, others at each step.
  std::vector<uint32_t> critical() {
    times_.run(graph_, now_);
    times_.run_back(graph_, now_);
    visits_ += 2 * cost();
    std::vector<uint32_t> found;
    for (const uint32_t j : times_.order)
      if (times_.end[j] + times_.tail[j] == times_.ns) found.push_back(j);
    if (found.size() <= kMostCritical) return found;
    std::vector<uint32_t> some;
    for (size_t i = 0; i < kMostCritical; ++i)
      some.push_back(
          found[(i * found.size() + static_cast<size_t>(step_) % kMostCritical * found.size() / kMostCritical) /
                kMostCritical]);
    return some;
  }
  int64_t cost() const { return graph_.tasks() + static_cast<int64_t>(graph_.arcs()); }

  // The best move that is not tabu, or leads below the best. False where there is none.
  bool step() {
    TaskMove best;
    TaskMoves moves(graph_, now_);
    const std::vector<uint32_t> tasks = critical();
    if (step_ % kExchanges == 0 && exchange(tasks)) return true;
    for (const uint32_t task : tasks) {
      moves.each(task, [&](const TaskMove& move) {
        if (move < best && (tabu_[task * graph_.devices() + move.device] <= step_ || move.ns < best_ns_)) best = move;
      });
      visits_ += 2 * cost();
    }
    visits_ += moves.seen();
    if (best.task == kNone) return false;
    apply(best);
    return true;
  }

  // Two tasks change devices, where that is better than it was: a critical one, and of each other device some that come
  // nearest to it in what both devices work then.
  bool exchange(const std::vector<uint32_t>& tasks) {
    const int64_t before = times_.ns;
    const std::vector<uint32_t> order = times_.by_start();
    std::vector<int64_t> load(graph_.devices(), 0);
    for (uint32_t j = 0; j < graph_.tasks(); ++j) load[now_.device[j]] += graph_.ns(j, now_.device[j]);
    int64_t least = before;
    std::vector<uint32_t> chosen;
    for (const uint32_t task : tasks)
      for (uint32_t d = 0; d < graph_.devices(); ++d) {
        if (d == now_.device[task] || !graph_.runs(task, d)) continue;
        for (const uint32_t other : mates(task, d, load)) {
          std::vector<uint32_t> device = now_.device;
          std::swap(device[task], device[other]);
          TaskTimes times;
          times.run(graph_, TaskSequences(graph_, device, order));
          visits_ += 2 * cost();
          if (times.ns < least) least = times.ns, chosen = std::move(device);
        }
      }
    if (least == before) return false;
    now_ = TaskSequences(graph_, chosen, order);
    keep_if_better();
    return true;
  }
  std::vector<uint32_t> mates(uint32_t task, uint32_t device, const std::vector<int64_t>& load) {
    const uint32_t home = now_.device[task];
    std::vector<std::pair<int64_t, uint32_t>> found;
    for (uint32_t j = now_.first[device]; j != kNone; j = now_.next[j]) {
      if (!graph_.runs(j, home) || !fits_exchanged(task, j)) continue;
      found.emplace_back(std::max(load[home] - graph_.ns(task, home) + graph_.ns(j, home),
                                  load[device] - graph_.ns(j, device) + graph_.ns(task, device)),
                         j);
    }
    std::sort(found.begin(), found.end());
    std::vector<uint32_t> some;
    for (size_t i = 0; i < std::min(kMates, found.size()); ++i) some.push_back(found[i].second);
    return some;
  }
  bool fits_exchanged(uint32_t task, uint32_t other) {
    const uint32_t here = now_.device[task], there = now_.device[other];
    now_.room.move(graph_, task, here, there);
    now_.room.move(graph_, other, there, here);
    const bool fits = now_.room.left()[here] >= 0 && now_.room.left()[there] >= 0;
    now_.room.move(graph_, other, here, there);
    now_.room.move(graph_, task, there, here);
    return fits;
  }
  void apply(const TaskMove& move) {
    const int64_t tenure = kLeastTenure + graph_.tasks() / 16 + groups_.next_random() % 6;
    tabu_[move.task * graph_.devices() + now_.device[move.task]] = step_ + tenure;
    now_.remove(graph_, move.task);
    now_.insert(graph_, move.task, move.device, move.before);
    keep_if_better();
  }
  void keep_if_better() {
    if (!times_.run(graph_, now_)) {  // no place that is taken makes a ring
      now_ = best_;
      return;
    }
    if (times_.ns >= best_ns_) return;
    best_ns_ = times_.ns;
    best_ = now_;
  }
  // From the best on, or at times from where the search is: of some ways to move groups, that which leads to the least
  // makespan.
  void move_a_group() {
    const int64_t seen = groups_.visits();
    groups_.aim_below(best_ns_, visits_ + seen);
    visits_ += groups_.visits() - seen;
    if (groups_.next_random() % 3 != 0) now_ = best_;
    times_.run(graph_, now_);
    const std::vector<uint32_t> order = times_.by_start();
    int64_t least = kNever;
    std::vector<uint32_t> chosen;
    for (size_t i = 0; i < kGroupMoves; ++i) {
      std::vector<uint32_t> device = now_.device;
      const std::vector<bool> moved = groups_.move(device, order);
      if (!groups_.make_room(device, moved) || device == now_.device) continue;
      TaskTimes times;
      times.run(graph_, TaskSequences(graph_, device, order));
      visits_ += 2 * cost();
      if (times.ns < least) least = times.ns, chosen = std::move(device);
    }
    if (least < kNever) now_ = TaskSequences(graph_, chosen, order);
    keep_if_better();
  }

  const TaskGraph& graph_;
  GroupMoves& groups_;
  TaskSequences now_, best_;
  int64_t best_ns_ = 0;
  TaskTimes times_;
  std::vector<int64_t> tabu_;  // by task and device: until which step
  int64_t step_ = 1, visits_ = 0;
};

}  // namespace

FoundSequences search_tabu(const TaskGraph& graph, const TaskSequences& start, GroupMoves& groups, int64_t visits) {
  return Tabu(graph, start, groups).run(visits);
}

}  // namespace spmdx
