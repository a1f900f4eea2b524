// SPDX-License-Identifier: Apache-2.0
// A graph that is no step, in an Executable of its own.
#include "bridge/step/run_now.h"

#include <exception>
#include <utility>

#include "bridge/backend/aten_backend.h"
#include "bridge/backend/shard_device.h"
#include "bridge/python/gil.h"

namespace spmdx::bridge {
namespace {

// A queue over a Comm of one process.
CollectiveQueue& local_queue() {
  static auto* comm = new Comm;
  static auto* collective_queue = new CollectiveQueue(*comm);
  return *collective_queue;
}

}  // namespace

std::vector<Shards> run_now(const Graph& graph, const std::vector<DataRef>& inputs, const std::vector<Param>& params,
                            const ErrorTranslator& translate) {
  NoGil no_gil;
  KernelGuard kernels_only;
  Executable executable(graph, aten_backend(), local_queue());
  RunResult result = executable.run(inputs, params, translate);
  if (result.error) std::rethrow_exception(result.error);
  return std::move(result.outputs);
}

}  // namespace spmdx::bridge
