// SPDX-License-Identifier: Apache-2.0
// The recorder: ops on lazy tensors become nodes of the one graph being recorded, until a step ends it.
#pragma once
#include <ATen/core/Tensor.h>

#include <exception>
#include <memory>
#include <vector>

#include "bridge/tensor/annotation.h"
#include "bridge/tensor/meta.h"
#include "bridge/tensor/tensor.h"
#include "runtime/step/engine.h"

namespace spmdx::bridge {

// What is recorded and has not run: a graph without outputs, the data of its inputs, and its parameters.
struct Recording {
  Graph graph;
  std::vector<DataRef> inputs;
  std::vector<Param> params;
};

struct RecorderState;

// Process-wide. Any thread that runs the program, autograd's among them; never the one that runs steps, which may be
// what is waited for. Functions take the recorder's lock where they need it, which the caller may hold already
// (autograd re-enters), and give up the GIL while they wait.
class Recorder {
 public:
  static Recorder& instance();

  // The graph value a tensor stands for now: replays its views where the root was written since.
  ValueId read(LazyTensor& tensor);
  // Makes `value` the content of what `tensor` views: folds the inverse views back into the root.
  void write(LazyTensor& tensor, ValueId value);
  // The root's storage becomes one of this layout; its elements stay in their places, others are 0. An annotation goes.
  void grow(Root& root, const Meta& whole);
  ValueId record(CallRef call, std::vector<ValueId> inputs, const std::vector<Param>& params);
  // The graph input that stands for this data.
  ValueId input(const DataRef& data);
  LazyValue lazy(ValueId value);
  // What a root holds to have this value: uploaded data is held as such, it is no result of the step.
  LazyValue held(ValueId value);
  // A number on the host (a 0-dim CPU tensor): a graph input whose data come with each run.
  ValueId host_scalar(const at::Tensor& tensor);
  const TensorType& type(ValueId value) const;
  // Known to be one number everywhere.
  bool is_uniform(ValueId value) const;
  // Held around everything below; a thread that must wait for it gives up the GIL meanwhile.
  class Lock {
   public:
    Lock();
    ~Lock();
    Lock(const Lock&) = delete;
  };

  // Ends the graph: every live root with a recorded value becomes an output. Returns when it is queued.
  void flush(bool implicit);
  // flush, wait, and the whole tensor on the CPU in its declared layout.
  at::Tensor materialise(const at::Tensor& tensor);
  // The same, but the result may share memory with values of the graph: REQUIRES that nobody writes to it.
  at::Tensor peek(const at::Tensor& tensor);
  // A tensor of the device holding a CPU tensor's elements, copied now.
  at::Tensor upload(const at::Tensor& host);
  // Ends a graph that grew too long. REQUIRES: between two ops.
  void cut_if_long();
  // Raises the error of a step that failed since the last call; tensors go back to what they held before it.
  void check_failed();
  // Until every step has ended that was submitted; then as check_failed.
  void wait();
  // Drops what is pending and the error of a step that failed, which it returns if nobody has seen it: tensors go back
  // to what was last computed, and those that never were hold an error. REQUIRES: no step runs.
  std::exception_ptr undo();
  // Plans what is pending on the mesh of this tensor and runs nothing. REQUIRES: it is ours.
  PlanRef plan_pending(const at::Tensor& tensor);
  // A copy of what is recorded now.
  Recording recording();

  // Annotates in place (REQUIRES: lazy tensor); a recorded value gets a constraint, existing data is resharded at
  // the next flush. Without a sharding: forget what was said.
  void annotate(const at::Tensor& tensor, const Annotation& said);
  // The tensor was annotated and shows other memory now: that is annotated so, unless it is annotated already. Where
  // the spec does not fit, a warning says that the annotation is gone.
  void keep_annotation(LazyTensor& tensor, const Annotation& had);

  // From here on steps are planned and not run; what is pending still runs.
  void begin_plan_only();
  // What is pending is dropped; tensors from before get back the values and annotations they had then.
  void end_plan_only();

  int64_t ops_recorded() const;
  int64_t implicit_syncs() const;
  void reset_counters();

 private:
  Recorder();
  const std::unique_ptr<RecorderState> state_;
  friend class Lock;
};

}  // namespace spmdx::bridge
