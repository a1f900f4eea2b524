// SPDX-License-Identifier: Apache-2.0
// Dive: one cluster of tasks after the other gets a device, and what can no longer be done in time goes no further.
#pragma once
#include <optional>

#include "passes/kinds/search/group_moves.h"

namespace spmdx {

struct DiveAim {
  const TaskGraph& graph;
  const TaskAncestors& ancestors;
  int64_t within_ns;
  const std::vector<uint32_t>& near;  // devices by task, which are tried first at times
  int64_t visits;                     // tasks that are looked at, at most
};

// Devices by task, of which it is not known that what they do cannot be done in time; nothing: none were met. Adds to
// `seen` what was looked at. If that is no more than may be, there are none.
std::optional<std::vector<uint32_t>> dive(const DiveAim& aim, GroupMoves& groups, int64_t& seen);

}  // namespace spmdx
