// SPDX-License-Identifier: Apache-2.0
// Topologies and reshard plans from Python: sets the topology, shows and runs a reshard plan, measures an exchange.
#include <ATen/ATen.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "bind/bind.h"
#include "bind/handles.h"
#include "bind/planning/hardware.h"
#include "bridge/backend/aten_backend.h"
#include "bridge/backend/aten_names.h"
#include "bridge/backend/buffer.h"
#include "bridge/backend/shard_device.h"
#include "bridge/recorder/engine.h"
#include "runtime/collective/transfer.h"
#include "sharding/notation.h"
#include "sharding/reshard/missing.h"
#include "sharding/reshard/reshard.h"
#include "sharding/shards.h"
#include "sharding/spec.h"

namespace spmdx {
namespace {

namespace py = pybind11;
using namespace bind;
using namespace py::literals;

py::dict as_dict(const Topology& topology) {
  py::list levels;
  for (const Level& level : topology.levels)
    levels.append(py::dict(
        "devices"_a = level.devices, "latency_ns"_a = level.latency_ns, "message_ns"_a = level.message_ns,
        "picoseconds_per_byte"_a = level.picoseconds_per_byte, "algorithm"_a = std::string(name(level.algorithm)),
        "efficiency"_a = as_points(level.efficiency), "processor_usage"_a = level.processor_usage,
        "native_gathers"_a = as_points(level.native_gathers), "native_sums"_a = as_points(level.native_sums)));
  return py::dict("levels"_a = levels, "hardware"_a = bind::as_dict(topology.hardware),
                  "processors"_a = topology.processors, "record_ns"_a = topology.record_ns);
}

Topology from_dict(const py::dict& fields) {
  Topology topology;
  topology.levels.clear();
  for (const py::handle& item : fields["levels"]) {
    const auto level = py::cast<py::dict>(item);
    const auto at = [&](const char* name) { return level[name].cast<int64_t>(); };
    topology.levels.push_back({at("devices"), at("latency_ns"), at("message_ns"), at("picoseconds_per_byte"),
                               algorithm_named(level["algorithm"].cast<std::string>()),
                               from_points(level["efficiency"]), level["processor_usage"].cast<double>(),
                               from_points(level["native_gathers"]), from_points(level["native_sums"])});
  }
  topology.hardware = hardware_from(fields["hardware"].cast<py::dict>());
  topology.processors = fields["processors"].cast<int64_t>();
  topology.record_ns = fields["record_ns"].cast<int64_t>();
  check(topology);
  return topology;
}

void set_topology(const py::dict& fields) {
  CompileOptions options = bridge::engine().options();
  const NativePolicy natives = options.topology.natives;
  options.topology = from_dict(fields);
  options.topology.natives = natives;
  py::gil_scoped_release no_gil;
  bridge::engine().set_options(std::move(options));
}

Way way_named(const std::string& name) { return name == "native" ? Way::native : Way::direct; }

// `way`: None, where the cheaper one is taken.
void set_natives(const std::optional<std::string>& way, const std::string& unmeasured, bool sums) {
  CompileOptions options = bridge::engine().options();
  NativePolicy& natives = options.topology.natives;
  natives = {way ? std::optional(way_named(*way)) : std::nullopt, way_named(unmeasured), sums};
  py::gil_scoped_release no_gil;
  bridge::engine().set_options(std::move(options));
}

py::dict reshard_plan(const std::string& dtype, const Shape& shape, const ShardingHandle& from,
                      const ShardingHandle& to, const py::dict& topology) {
  const DType type = dtype_named(dtype);
  const auto began = std::chrono::steady_clock::now();
  const ReshardPlanRef plan = plan_reshard(type, shape, from.sharding, to.sharding, from_dict(topology));
  const double us = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - began).count();
  py::list moves;
  for (const Move& move : plan->moves)
    moves.append(py::dict("kind"_a = std::string(name(move.kind)), "bytes"_a = move.bytes,
                          "axes"_a = axis_names(*move.to->mesh, sub_axis_list(move.sub_axes)),
                          "to"_a = str(TensorType{type, shape, false}, move.to)));
  return py::dict("moves"_a = moves, "bytes"_a = plan->bytes, "cost_ns"_a = plan->cost_ns,
                  "peak_bytes"_a = plan->peak_bytes, "microseconds"_a = us);
}

// The bytes that a direct exchange sends to the device that lacks most. REQUIRES: both shardings are not partial.
int64_t missing_bytes(const std::string& dtype, const Shape& shape, const ShardingHandle& from,
                      const ShardingHandle& to) {
  return missing(*from.sharding, *to.sharding, shape).elements * itemsize(dtype_named(dtype));
}

// Runs the reshard plan in this process, on one tensor per device in order of position. Returns such tensors.
std::vector<at::Tensor> run_reshard(const std::vector<at::Tensor>& locals, const Shape& shape,
                                    const ShardingHandle& from, const ShardingHandle& to, const py::dict& topology) {
  const TensorType type{bridge::to_dtype(locals.at(0).scalar_type()), shape, false};
  const ReshardPlanRef plan = plan_reshard(type.dtype, shape, from.sharding, to.sharding, from_dict(topology));
  ShardingRef at = from.sharding;
  Shards shards;
  for (int64_t i = 0; i < num_distinct(*at->mesh, at->used()); ++i)
    shards.push_back(bridge::lent(locals.at(representative(*at->mesh, at->used(), i))));
  for (const Move& move : plan->moves) {
    shards = transfer_here(bridge::aten_backend(), type.dtype, {shape, at, move.to, {}}, std::move(shards));
    at = move.to;
  }
  std::vector<at::Tensor> results;
  for (int64_t p = 0; p < at->mesh->size(); ++p)
    results.push_back(bridge::to_host(bridge::tensor_of(shards.at(distinct_index(*at->mesh, at->used(), p)))));
  return results;
}

// The shortest of `repeats` measured times, in nanoseconds, of an all_to_all of f32 shards among devices of this
// process.
int64_t time_exchange(int64_t devices, int64_t rows, int repeats) {
  std::vector<int64_t> ids(devices);
  for (int64_t i = 0; i < devices; ++i) ids[i] = i;
  const MeshRef mesh = Mesh::make(ids, {devices}, {"x"});
  const Shape shape = {devices * rows, devices};
  const ShardingRef from = to_sharding({{{int64_t{0}}, {}}}, mesh, shape, "x");
  const ShardingRef to = to_sharding({{{}, {int64_t{0}}}}, mesh, shape, "x");
  const Route route = make_route({}, {shape, from, to, {}});
  Shards shards;
  for (int64_t i = 0; i < devices; ++i) shards.push_back(bridge::lent(at::ones({rows, devices}, at::kFloat)));
  int64_t least = INT64_MAX;
  for (int i = 0; i < repeats; ++i) {
    const auto began = std::chrono::steady_clock::now();
    const Shards moved = Transfer(bridge::aten_backend(), route, DType::f32, Reduction::none, shards).finish();
    const auto ended = std::chrono::steady_clock::now();
    least = std::min<int64_t>(least, std::chrono::duration_cast<std::chrono::nanoseconds>(ended - began).count());
  }
  return least;
}

}  // namespace

void bind_topology(py::module_& m) {
  m.def("topology_names", [] {
    std::vector<std::string> names;
    for (std::string_view name : topology_names()) names.emplace_back(name);
    return names;
  });
  m.def("topology_named", [](const std::string& name) { return as_dict(topology_named(name)); });
  m.def("topology", [] { return as_dict(bridge::engine().options().topology); });
  m.def("set_topology", set_topology);
  m.def("set_natives", set_natives, "way"_a, "unmeasured"_a, "sums"_a);
  m.def("check_topology", [](const py::dict& fields) { from_dict(fields); });
  m.def("check_hardware", [](const py::dict& fields) { hardware_from(fields); });
  m.def("reshard_plan", reshard_plan);
  m.def("missing_bytes", missing_bytes);
  m.def("run_reshard", run_reshard);
  m.def("time_exchange", time_exchange, py::call_guard<py::gil_scoped_release>());
}

}  // namespace spmdx
