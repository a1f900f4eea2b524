// SPDX-License-Identifier: Apache-2.0
// Capture: notes of reads, and the first thing that stands against a replay.
#include "bridge/recorder/capture.h"

#include <algorithm>

#include "bridge/python/source.h"

namespace spmdx::bridge {

void Capture::note_read(const Root& root) {
  std::vector<ReadRoot>& holders = read[root.current.data.get()];
  const auto is_it = [&](const ReadRoot& holder) { return holder.root._unsafe_get_target() == &root; };
  if (std::ranges::any_of(holders, is_it)) return;
  const RootRef ref = RootRef::unsafe_reclaim_from_nonowning(const_cast<Root*>(&root));
  holders.push_back({WeakRootRef(ref), root.serial});
}

void Capture::note_sent(const PlanRef& plan, const std::vector<DataRef>& inputs, std::vector<Param> params,
                        const std::vector<RootRef>& owners) {
  Sent step{plan, {}, std::move(params), owners, current_source()};
  for (const DataRef& data : inputs) {
    const auto holders = read.find(data.get());
    const bool held = holders != read.end();
    step.inputs.push_back({held ? holders->second : std::vector<ReadRoot>(), held ? nullptr : data, data->sharding()});
  }
  sent.push_back(std::move(step));
  read.clear();
}

void Capture::refuse(const std::string& why) {
  if (!refused.empty() || std::this_thread::get_id() != thread) return;
  const std::string line = source_text(current_source());
  refused = line.empty() ? why : why + " at " + line;
}

}  // namespace spmdx::bridge
