// SPDX-License-Identifier: Apache-2.0
// Finds the data of a tensor, or the sharding that a plan gives it.
#include <pybind11/pybind11.h>

#include "base/error.h"
#include "bind/handles.h"
#include "bridge/recorder/recorder.h"
#include "bridge/step/flush.h"
#include "bridge/tensor/abstract.h"
#include "bridge/tensor/annotation.h"
#include "bridge/tensor/meta.h"
#include "bridge/tensor/tensor.h"

namespace spmdx::bind {
namespace {

namespace py = pybind11;

// A tensor with a root of its own that holds what `tensor` shows: `tensor` itself, or for a view a new one.
at::Tensor rooted(const at::Tensor& tensor) {
  bridge::LazyTensor& lazy = require_lazy(tensor, "spmdx");
  if (!lazy.chain()) return tensor;
  auto& recorder = bridge::Recorder::instance();
  const bridge::Recorder::Lock lock;  // so that no other thread ends the graph between the read and its use
  const at::Tensor own =
      bridge::make_tensor(recorder.lazy(recorder.read(lazy)), bridge::share(bridge::meta_of(tensor)));
  if (lazy.of_view) require_lazy(own, "spmdx").root().annotation = std::make_unique<bridge::Annotation>(*lazy.of_view);
  return own;
}

// The sharding that the plan gives to the tensor's value, or null. The outputs have the same order in the recorded and
// in the compiled graph.
ShardingRef planned(const bridge::PendingPlan& pending) {
  const Graph& compiled = pending.plan->executable->graph();
  if (pending.output >= compiled.outputs.size()) return nullptr;
  return compiled.value(compiled.outputs[pending.output].value).sharding;
}

}  // namespace

bridge::LazyTensor& require_lazy(const at::Tensor& tensor, const char* what) {
  bridge::LazyTensor* lazy = tensor.defined() ? bridge::as_lazy(tensor) : nullptr;
  if (!lazy) {
    std::string device = tensor.defined() ? tensor.device().str() : "no device";
    throw ShardingError(std::string(what) + ": the tensor is on " + device +
                        ". Expected a tensor on device 'spmdx'. Move it there first with .to(\"spmdx\").");
  }
  return *lazy;
}

DataRef computed_data(const at::Tensor& tensor) {
  const bridge::Recorder::Lock lock;
  bridge::require_values(require_lazy(tensor, "spmdx"));
  bridge::Recorder::instance().note_value_read();
  at::Tensor own = rooted(tensor);
  bridge::Root& root = require_lazy(own, "spmdx").root();
  const bool lies_elsewhere =
      root.annotation && root.current.data && root.current.data->sharding() != root.annotation->sharding;
  if (!root.current.data || lies_elsewhere) {
    if (bridge::planning_only()) bridge::refuse_values();
    py::gil_scoped_release no_gil;
    bridge::flush(bridge::GraphEnd::read);
  }
  internal_check(root.current.data != nullptr, "a flush left a live tensor without data");
  return root.current.data;
}

ShardingRef sharding_of(const at::Tensor& tensor) {
  auto plan_pending = [](const at::Tensor& pending) {
    py::gil_scoped_release no_gil;
    return bridge::plan_pending(pending);
  };
  const bridge::Recorder::Lock lock;
  const bridge::LazyTensor& lazy = require_lazy(tensor, "get_sharding");
  if (lazy.annotation()) return lazy.annotation()->sharding;
  if (lazy.chain()) plan_pending(tensor);  // a gradient that is a view gets a root of its own when it is planned
  at::Tensor own = rooted(tensor);
  bridge::Root& root = require_lazy(own, "get_sharding").root();
  if (root.current.data) return root.current.data->sharding();
  const bridge::PendingPlan pending = plan_pending(own);
  return pending.plan ? planned(pending) : nullptr;
}

}  // namespace spmdx::bind
