// SPDX-License-Identifier: Apache-2.0
// Fetch: a step of no ops, whose output is replicated.
#include "bridge/step/fetch.h"

#include <numeric>

#include "bridge/python/gil.h"
#include "bridge/python/source.h"
#include "bridge/recorder/engine.h"
#include "bridge/world/c10d_comm.h"
#include "sharding/processes.h"

namespace spmdx::bridge {
namespace {

// The mesh itself, or a mesh of all devices where the given one leaves a process out.
MeshRef mesh_of_all(const MeshRef& mesh, const Processes& processes) {
  if (held_everywhere(processes, *mesh, 0)) return mesh;
  std::vector<int64_t> ids(processes.count * processes.devices);
  std::iota(ids.begin(), ids.end(), 0);
  const auto count = static_cast<int64_t>(ids.size());
  return Mesh::make(std::move(ids), {count}, {"device"});
}

}  // namespace

DataRef held_here(const DataRef& data) {
  const ShardingRef sharding = data->sharding();
  const Processes processes = comm().processes();
  if (processes.count == 1 || !sharding ||
      held_everywhere(processes, *sharding->mesh, sharding->used(), sharding->place))
    return data;
  Graph graph;
  graph.mesh = mesh_of_all(sharding->mesh, processes);
  const ValueId value = graph.add_input(data->type());
  graph.inputs[0].physical = sharding;
  graph.outputs.push_back(
      {.value = value, .annotation = replicated(graph.mesh, data->type().shape.size()), .source = current_source()});
  const auto whole = std::make_shared<Data>(data->type());
  NoGil no_gil;
  engine().submit(engine().plan(graph, PlanFor::itself), {data}, {}, {whole});
  return whole;
}

}  // namespace spmdx::bridge
