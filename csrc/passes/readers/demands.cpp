// SPDX-License-Identifier: Apache-2.0
// Demands, kept by layout.
#include "passes/readers/demands.h"

#include <algorithm>
#include <utility>

#include "passes/settings/limits.h"

namespace spmdx {
namespace {

constexpr auto kByPosition = [](const auto& a, const auto& b) { return a.position < b.position; };

}  // namespace

Demands::Demands(std::span<const Read> reads, bool transient) : reads_(reads) {
  if (!transient) return;
  parts_.push_back(0);
  for (uint32_t i = 1; i < reads.size(); ++i)
    if (far_apart(i - 1, i)) parts_.push_back(i);
}

bool Demands::far_apart(uint32_t position, uint32_t next) const {
  return reads_[position].node + kLimits.nodes_a_copy_stays < reads_[next].node;
}

size_t Demands::part_of(uint32_t position) const {
  if (parts_.empty()) return 0;
  return static_cast<size_t>(std::upper_bound(parts_.begin(), parts_.end(), position) - parts_.begin()) - 1;
}

std::pair<uint32_t, uint32_t> Demands::positions(size_t part) const {
  const auto end = static_cast<uint32_t>(reads_.size());
  if (parts_.empty()) return {0, end};
  return {parts_[part], part + 1 < parts_.size() ? parts_[part + 1] : end};
}

// The first position that belongs to this node or a later one.
uint32_t Demands::first_at(NodeId node) const {
  const auto at =
      std::partition_point(reads_.begin(), reads_.end(), [&](const Read& read) { return read.node < node; });
  return static_cast<uint32_t>(at - reads_.begin());
}

// A reader adds or removes copies that live for `nodes_a_copy_stays`, and may join stretches or part them as far away.
// Farther on something differs only where a stretch that starts in time finds another copy to be made from.
std::pair<uint32_t, uint32_t> Demands::reach(uint32_t position) const {
  constexpr NodeId kFar = 2 * kLimits.nodes_a_copy_stays;
  const NodeId node = reads_[position].node;
  NodeId first = node - std::min(node, kFar), last = node + kFar + kLimits.nodes_a_copy_stays;
  for (bool farther = true; std::exchange(farther, false);)
    for (const Layout& layout : layouts_) {
      const uint32_t early = layout.starts.next(first_at(first)), late = layout.starts.before(first_at(last + 1));
      if (early < position && reads_[early].node < first + kFar) {
        farther |= first > 0;
        first = reads_[early].node - std::min(reads_[early].node, kFar);
      }
      if (late != PositionSet::kEnd && reads_[late].node + kFar > last) {
        last = reads_[late].node + kFar;
        farther = true;
      }
    }
  return {first_at(first), first_at(last + 1)};
}

// Whether a stretch starts at this position, after the use before it has changed.
void Demands::mark_start(Layout& layout, uint32_t position) const {
  if (position == PositionSet::kEnd || !layout.at.contains(position)) return;
  const uint32_t before = layout.at.before(position);
  if (before == PositionSet::kEnd || far_apart(before, position))
    layout.starts.insert(position);
  else
    layout.starts.erase(position);
}

void Demands::insert(uint32_t position, const ShardingRef& wanted) {
  auto at = std::find_if(layouts_.begin(), layouts_.end(), [&](const Layout& l) { return l.wanted == wanted; });
  if (at == layouts_.end()) {
    const auto bound = static_cast<uint32_t>(reads_.size());
    layouts_.push_back({wanted, PositionSet(bound), parts_.empty() ? PositionSet() : PositionSet(bound)});
    at = layouts_.end() - 1;
  }
  at->at.insert(position);
  if (parts_.empty()) return;
  mark_start(*at, position);
  mark_start(*at, at->at.next(position + 1));
}

void Demands::erase(uint32_t position, const ShardingRef& wanted) {
  const auto at = std::find_if(layouts_.begin(), layouts_.end(), [&](const Layout& l) { return l.wanted == wanted; });
  at->at.erase(position);
  if (at->at.empty()) {
    std::swap(*at, layouts_.back());
    layouts_.pop_back();
  } else if (!parts_.empty()) {
    at->starts.erase(position);
    mark_start(*at, at->at.next(position));
  }
}

void Demands::change(UsesOfOne uses, const Placement* before, const Placement* after) {
  for (const Use& use : uses) {
    if (before && after && before->inputs[use.operand] == after->inputs[use.operand]) continue;
    if (before) erase(use.position, before->inputs[use.operand]);
    if (after) insert(use.position, after->inputs[use.operand]);
  }
}

void Demands::distinct(UsesOfOne uses, const Placement* with, std::vector<Stretch>& found) const {
  const size_t begin = found.size();
  const uint32_t own = uses.empty() ? PositionSet::kEnd : uses.front().position;
  const auto add = [&](const ShardingRef& wanted, uint32_t position) {
    const NodeId node = reads_[position].node;
    for (size_t i = begin; i < found.size(); ++i) {
      if (*found[i].wanted != wanted) continue;
      if (position < found[i].position) found[i] = {&wanted, position, node, node};
      return;
    }
    found.push_back({&wanted, position, node, node});
  };
  for (const Layout& layout : layouts_) {
    uint32_t first = layout.at.first();
    if (first >= own && first < own + uses.size()) first = layout.at.next(own + static_cast<uint32_t>(uses.size()));
    if (first != PositionSet::kEnd) add(layout.wanted, first);
  }
  for (const Use& use : uses)
    if (with) add(with->inputs[use.operand], use.position);
  std::sort(found.begin() + static_cast<long>(begin), found.end(), kByPosition);
}

void Demands::stretches(size_t part, std::vector<Stretch>& found) const {
  if (parts_.empty()) return distinct({}, nullptr, found);
  const auto [begin, end] = positions(part);
  const size_t size = found.size();
  for (const Layout& layout : layouts_) {
    for (uint32_t at = layout.starts.next(begin); at < end;) {
      const uint32_t next = layout.starts.next(at + 1);
      const uint32_t last = layout.at.before(std::min(next, static_cast<uint32_t>(reads_.size())));
      found.push_back({&layout.wanted, at, reads_[at].node, reads_[last].node});
      at = next;
    }
  }
  std::sort(found.begin() + static_cast<long>(size), found.end(), kByPosition);
}

std::vector<uint32_t> Demands::others(const ShardingRef& layout) const {
  std::vector<uint32_t> positions;
  for (const Layout& other : layouts_) {
    if (other.wanted == layout) continue;
    for (uint32_t at = other.at.first(); at != PositionSet::kEnd; at = other.at.next(at + 1)) positions.push_back(at);
  }
  std::sort(positions.begin(), positions.end());
  return positions;
}

void Demands::summarize(std::vector<Summary>& found) const {
  found.clear();
  for (const Layout& layout : layouts_) {
    const uint32_t first = layout.at.first();
    uint32_t second = layout.at.next(first + 1);
    while (second != PositionSet::kEnd && reads_[second].node == reads_[first].node)
      second = layout.at.next(second + 1);
    found.push_back({layout.wanted.get(), first, second});
  }
  std::sort(found.begin(), found.end(), [](const Summary& a, const Summary& b) { return a.first < b.first; });
}

}  // namespace spmdx
