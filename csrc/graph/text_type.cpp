// SPDX-License-Identifier: Apache-2.0
// Types in graph text: reads a type, and refuses one that is too large.
#include "graph/text_type.h"

#include <algorithm>

#include "base/error.h"
#include "sharding/notation.h"

namespace spmdx {
namespace {

// Refuses a type whose bytes do not fit into 63 bits, because products of its sizes would overflow everywhere.
void check_numel(const TensorType& type) {
  int64_t bytes = itemsize(type.dtype);
  for (int64_t size : type.shape) {
    if (__builtin_mul_overflow(bytes, std::max<int64_t>(size, 1), &bytes)) {
      throw ShardingError(str(type) + " is too large. Expected at most 2^63 bytes.");
    }
  }
}

}  // namespace

std::pair<TensorType, ShardingRef> read_type(Cursor& cursor, const MeshRef& mesh) {
  cursor.skip_blanks();
  const size_t start = cursor.position();
  auto [type, sharding] = parse_type(cursor, mesh);
  check_numel(type);
  // parse_type may give a replicated sharding for "f32[4]", but only "f32[4] replicated" means one here.
  if (sharding && sharding->replicated() && sharding->place.plain()) sharding = nullptr;
  if (cursor.accept("replicated")) {
    if (!mesh) throw ShardingError("'replicated' without a mesh. Expected a line like mesh(data=2) at the top.");
    if (sharding) throw ShardingError(std::string(cursor.since(start)) + " is both cut and replicated.");
    sharding = replicated(mesh, type.shape.size());
  }
  type.wrapped_number = cursor.accept("number");
  return {type, sharding};
}

}  // namespace spmdx
