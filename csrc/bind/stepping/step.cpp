// SPDX-License-Identifier: Apache-2.0
// Steps from Python: ends the recorded graph, waits for steps, counts them, and sets compile options.
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <map>
#include <optional>

#include "bind/bind.h"
#include "bind/handles.h"
#include "bridge/plans/memory.h"
#include "bridge/plans/plan_warnings.h"
#include "bridge/python/source.h"
#include "bridge/record/intern.h"
#include "bridge/recorder/engine.h"
#include "bridge/recorder/recorder.h"
#include "bridge/replay/captured.h"
#include "bridge/step/constants.h"
#include "bridge/step/flush.h"
#include "bridge/step/plan_only.h"
#include "bridge/tensor/abstract.h"
#include "bridge/world/c10d_comm.h"
#include "sharding/reshard/reshard.h"

namespace spmdx {
namespace {

namespace py = pybind11;
using namespace bind;

std::map<std::string, int64_t> counters() {
  const bridge::Recorder& recorder = bridge::Recorder::instance();
  const bridge::Recorder::Lock lock;
  const StepCounters steps = bridge::engine().counters();
  int64_t fallback_ops = 0;
  for (const auto& [op, times] : steps.fallbacks) fallback_ops += times;
  return {{"ops_recorded", recorder.ops_recorded()},
          {"steps", steps.steps},
          {"steps_of_readers", steps.steps_of_readers},
          {"steps_replayed", bridge::replayed_steps()},
          {"plans_compiled", steps.plans_compiled},
          {"plans_searched", steps.plans_searched},
          {"plan_cache_hits", steps.plan_cache_hits},
          {"implicit_syncs", recorder.implicit_syncs()},
          {"collectives", steps.collectives},
          {"native_collectives", bridge::native_collectives()},
          {"wire_bytes", steps.wire_bytes},
          {"fallback_ops", fallback_ops},
          {"calls_kept", static_cast<int64_t>(bridge::interned_count())},
          {"plans_kept", static_cast<int64_t>(bridge::engine().plans_kept())},
          {"plan_bytes_kept", bridge::engine().plan_bytes_kept()},
          {"reshard_plans_kept", static_cast<int64_t>(reshard_plans_kept())},
          {"shardings_kept", static_cast<int64_t>(shardings_kept())},
          {"trace_bytes", recorder.bytes_held()}};
}

void reset_counters() {
  bridge::Recorder::instance().reset_counters();
  bridge::engine().reset_counters();
  bridge::reset_native_collectives();
  bridge::reset_replayed_steps();
}

// `plans`: a folder for what is decided; empty: it is forgotten with the process.
void configure(const std::string& dump_dir, const std::string& plans, const std::string& version) {
  CompileOptions options = bridge::engine().options();
  options.dump_dir = dump_dir;
  options.source = bridge::source_text;
  bridge::engine().set_options(std::move(options));
  if (!plans.empty()) bridge::engine().keep_precedents(plans, version);
}

std::optional<int64_t> limit_or_none(int64_t bytes) { return bytes == kNoLimit ? std::nullopt : std::optional(bytes); }

void set_gather_budget(std::optional<int64_t> bytes) {
  CompileOptions options = bridge::engine().options();
  options.gather_budget = bytes.value_or(kNoLimit);
  bridge::engine().set_options(std::move(options));
}

std::optional<int64_t> gather_budget() { return limit_or_none(bridge::engine().options().gather_budget); }

void assume(const at::Tensor& tensor, const at::Tensor& elements) {
  const bridge::Recorder::Lock lock;
  bridge::assume(require_lazy(tensor, "assume"), elements);
}

// For calls that take the lock of the recorder or of planning: a thread that holds one of these may need the GIL.
using NoGil = py::call_guard<py::gil_scoped_release>;

}  // namespace

void bind_step(py::module_& m) {
  m.attr("TORCH_VERSION") = SPMDX_TORCH_VERSION;
  m.def(
      "flush", [](bool awaited) { bridge::flush(awaited ? bridge::GraphEnd::awaited : bridge::GraphEnd::asked); },
      py::arg("awaited") = false, NoGil());
  m.def("wait", bridge::wait_for_steps);
  m.def("begin_plan_only", bridge::begin_plan_only);
  m.def("end_plan_only", bridge::end_plan_only);
  m.def("planning_only", &bridge::planning_only);
  m.def("assume", assume, py::arg("tensor"), py::arg("elements"));
  m.def("counters", counters, NoGil());
  m.def("reset_counters", reset_counters);
  m.def("fallback_counts", [] { return bridge::engine().counters().fallbacks; });
  m.def("set_fallbacks_are_errors", bridge::set_fallbacks_are_errors, py::arg("errors"));
  m.def("set_plans_are_trials", bridge::set_plans_are_trials, py::arg("trials"));
  m.def("clear_cache", [] { bridge::engine().clear_cache(); }, NoGil());
  m.def("configure", configure, py::arg("dump_dir"), py::arg("plans") = "", py::arg("version") = "", NoGil());
  m.def("set_gather_budget", set_gather_budget, py::arg("bytes").none(true), NoGil());
  m.def("gather_budget", gather_budget);
  m.def(
      "set_memory_limit",
      [](std::optional<int64_t> bytes, std::optional<bool> recompute) {
        bridge::set_memory_limit(bytes.value_or(kNoLimit), recompute);
      },
      py::arg("bytes").none(true), py::arg("recompute").none(true) = py::none(), NoGil());
  m.def("memory_limit", [] { return limit_or_none(bridge::memory_limit()); });
}

}  // namespace spmdx
