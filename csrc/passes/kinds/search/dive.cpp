// SPDX-License-Identifier: Apache-2.0
#include "passes/kinds/search/dive.h"

#include <algorithm>

namespace spmdx {
namespace {

class Dive {
 public:
  Dive(const DiveAim& aim, GroupMoves& groups)
      : graph_(aim.graph), near_(aim.near), groups_(groups), most_(aim.visits) {}

  // Whether devices were found.
  bool run(TaskWindows& windows) {
    const int64_t before = windows.visits();
    const bool possible = windows.tighten();
    visits_ += windows.visits() - before;
    if (!possible || visits_ > most_) return false;
    const uint32_t cluster = windows.open_cluster(1);
    if (cluster == graph_.tasks()) {
      for (uint32_t j = 0; j < graph_.tasks(); ++j) device_.push_back(windows.fixed_on(windows.cluster(j)));
      return true;
    }
    for (const uint32_t d : devices_of(windows, cluster)) {
      TaskWindows inner = windows;
      inner.fix(cluster, d);
      if (run(inner)) return true;
      if (visits_ > most_) return false;
    }
    return false;
  }
  std::vector<uint32_t> take() { return std::move(device_); }
  int64_t visits() const { return visits_; }

 private:
  std::vector<uint32_t> devices_of(const TaskWindows& windows, uint32_t cluster) {
    std::vector<uint32_t> found;
    for (uint32_t d = 0; d < graph_.devices(); ++d)
      if (windows.can(cluster, d)) found.push_back(d);
    for (size_t i = found.size(); i > 1; --i)
      std::swap(found[i - 1], found[static_cast<size_t>(groups_.next_random()) % i]);
    const auto near = std::ranges::find(found, near_[cluster]);
    if (near != found.end() && groups_.next_random() % 2 == 0) std::iter_swap(found.begin(), near);
    return found;
  }

  const TaskGraph& graph_;
  const std::vector<uint32_t>& near_;
  GroupMoves& groups_;
  const int64_t most_;
  int64_t visits_ = 0;
  std::vector<uint32_t> device_;
};

}  // namespace

std::optional<std::vector<uint32_t>> dive(const DiveAim& aim, GroupMoves& groups, int64_t& seen) {
  TaskWindows windows(aim.graph, aim.ancestors, aim.within_ns);
  Dive search(aim, groups);
  const bool found = search.run(windows);
  seen += search.visits();
  if (!found) return std::nullopt;
  return search.take();
}

}  // namespace spmdx
