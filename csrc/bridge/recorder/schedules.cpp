// SPDX-License-Identifier: Apache-2.0
// Schedules: one for each mesh that has stages.
#include "bridge/recorder/schedules.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace spmdx::bridge {
namespace {

// Never destroyed. Few meshes have one.
std::vector<std::pair<MeshRef, std::string>>& table() {
  static auto* table = new std::vector<std::pair<MeshRef, std::string>>();
  return *table;
}

auto entry_of(const MeshRef& mesh) {
  return std::find_if(table().begin(), table().end(), [&](const auto& entry) { return *entry.first == *mesh; });
}

}  // namespace

void set_schedule(const MeshRef& mesh, std::string schedule) {
  if (const auto known = entry_of(mesh); known != table().end()) table().erase(known);
  if (!schedule.empty()) table().emplace_back(mesh, std::move(schedule));
}

std::string schedule_of(const MeshRef& mesh) {
  if (!mesh || table().empty()) return "";
  const auto known = entry_of(mesh);
  return known == table().end() ? "" : known->second;
}

}  // namespace spmdx::bridge
