// SPDX-License-Identifier: Apache-2.0
// Replay: of the ranks whose next action can run, always the one that starts first.
#include "passes/pipeline/replay.h"

#include <algorithm>
#include <queue>
#include <utility>

namespace spmdx {
namespace {

class Ranks {
 public:
  Ranks(const Dependencies& dependencies, double send) : all_(dependencies), send_(send) {
    done_.start.resize(all_.actions.size());
    done_.end.resize(all_.actions.size());
    done_.next.assign(all_.first.begin(), all_.first.end() - 1);
    has_run_.resize(all_.actions.size());
    waiter_.assign(all_.actions.size(), kNobody);
    free_at_.resize(all_.num_ranks());
  }

  Replay run(const std::function<double(const PlacedAction&)>& duration) {
    for (int32_t rank = 0; rank < all_.num_ranks(); ++rank) look_at(rank);
    while (!ready_.empty()) {
      const auto [start, rank] = ready_.top();
      ready_.pop();
      const ActionId id = done_.next[rank]++;
      done_.start[id] = start;
      done_.end[id] = free_at_[rank] = start + duration(all_.actions[id]);
      has_run_[id] = true;
      done_.order.push_back(id);
      look_at(rank);
      if (waiter_[id] != kNobody) look_at(waiter_[id]);
    }
    return std::move(done_);
  }

 private:
  static constexpr int32_t kNobody = -1;

  // The rank's next action can run, or the rank waits at the first action that it needs.
  void look_at(int32_t rank) {
    const ActionId id = done_.next[rank];
    if (id == all_.first[rank + 1]) return;
    double start = free_at_[rank];
    for (const ActionId need : all_.actions[id].needs) {
      if (need == kNoAction) continue;
      if (need == kAbsent) return;
      if (!has_run_[need]) {
        waiter_[need] = rank;  // its only one: of the other ranks one alone takes what an action makes
        return;
      }
      start = std::max(start, done_.end[need] + (all_.actions[need].rank == rank ? 0 : send_));
    }
    ready_.emplace(start, rank);
  }

  const Dependencies& all_;
  double send_;
  Replay done_;
  std::vector<bool> has_run_;
  std::vector<int32_t> waiter_;  // of an action, the rank whose next action waits for it
  std::vector<double> free_at_;
  std::priority_queue<std::pair<double, int32_t>, std::vector<std::pair<double, int32_t>>, std::greater<>> ready_;
};

}  // namespace

Replay replay(const Dependencies& dependencies, const std::function<double(const PlacedAction&)>& duration,
              double send) {
  return Ranks(dependencies, send).run(duration);
}

}  // namespace spmdx
