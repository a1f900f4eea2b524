// SPDX-License-Identifier: Apache-2.0
// Sent: the pieces that a shard in the new layout is made up of, by the devices that hold them.
#include "runtime/collective/sent.h"

#include <map>

namespace spmdx {

std::vector<Sent> sent(const Relayout& relayout, DType dtype) {
  const Mesh &from = *relayout.from->mesh, &to = *relayout.to->mesh;
  std::vector<Sent> all;
  for (int64_t position = 0; position < to.size(); ++position) {
    if (!lies_at(to, relayout.to->place, position)) continue;
    std::map<int64_t, int64_t> bytes;  // by sender
    for (const Summand& summand : assembly_at(relayout, position).summands)
      for (const BoxCopy& piece : summand)
        bytes[from.device_ids()[piece.position]] += volume(piece.box) * itemsize(dtype);
    const int64_t here = to.device_ids()[position];
    for (const auto& [sender, size] : bytes)
      if (sender != here && size > 0) all.push_back({sender, here, size});
  }
  return all;
}

}  // namespace spmdx
