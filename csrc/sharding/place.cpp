// SPDX-License-Identifier: Apache-2.0
// Places: coordinates of positions along a stage axis, round robin.
#include "sharding/place.h"

#include <string_view>

#include "base/error.h"

namespace spmdx {
namespace {

constexpr std::string_view kHost = "host";

// How far apart neighbours along the axis are in the row-major order of positions.
int64_t stride_of(const Mesh& mesh, int axis) {
  int64_t stride = 1;
  for (size_t i = mesh.axes().size(); i-- > static_cast<size_t>(axis) + 1;) stride *= mesh.axes()[i].size;
  return stride;
}

}  // namespace

bool lies_at(const Mesh& mesh, const Place& place, int64_t position) {
  return moved_to(mesh, place, position) == position;
}

int64_t moved_to(const Mesh& mesh, const Place& place, int64_t position) {
  if (place.whole()) return position;
  const int64_t stride = stride_of(mesh, place.axis), size = mesh.axes()[place.axis].size;
  return position + (place.stage % size - position / stride % size) * stride;
}

bool same_devices(const Mesh& mesh, const Place& a, const Place& b) {
  return a.axis == b.axis && (a.whole() || (a.stage - b.stage) % mesh.axes()[a.axis].size == 0);
}

int64_t size_of(const Mesh& mesh, const Place& place) {
  return place.whole() ? mesh.size() : mesh.size() / mesh.axes()[place.axis].size;
}

std::string str(const Mesh& mesh, const Place& place) {
  std::string stage = place.whole() ? "" : mesh.axes()[place.axis].name + "=" + std::to_string(place.stage);
  if (!place.host) return stage;
  return (stage.empty() ? "" : stage + " ") + std::string(kHost);
}

Place parse_place(Cursor& cursor, const Mesh& mesh) {
  cursor.skip_blanks();
  if (cursor.peek(kHost) && !cursor.line().substr(cursor.position() + kHost.size()).starts_with("=")) {
    cursor.expect(kHost);
    return Place{}.on_host();
  }
  const std::string name(cursor.until("= "));
  const int axis = mesh.axis_index(name);
  if (axis < 0)
    throw ShardingError("'" + name + "' is no axis of " + mesh.str() +
                        ". Expected the stage axis of a place. Write a place as 'on pipe=1'.");
  const auto stage = cursor.accept("=") ? cursor.number_or_none<int64_t>() : std::nullopt;
  if (!stage || *stage < 0 || *stage >= kMostStages)
    throw ShardingError("a place of axis '" + name + "' has no stage between 0 and " + std::to_string(kMostStages - 1) +
                        ". Expected its number. Write a place as 'on pipe=1'.");
  const size_t end = cursor.position();
  const bool host = cursor.accept(kHost);
  if (!host) cursor.back_to(end);
  return {axis, *stage, host};
}

}  // namespace spmdx
