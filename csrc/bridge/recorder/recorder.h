// SPDX-License-Identifier: Apache-2.0
// The recorder: ops on lazy tensors become nodes of the one graph being recorded, until a step ends it.
#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "bridge/tensor/annotation.h"
#include "bridge/tensor/meta.h"
#include "bridge/tensor/tensor.h"

namespace spmdx::bridge {

// What is recorded and has not run: a graph without outputs, the data of its inputs, and its parameters.
struct Recording {
  Graph graph;
  std::vector<DataRef> inputs;
  std::vector<Param> params;
};

struct RecorderState;

// Process-wide. What ends the graph is in bridge/step. Threads and locks are said as docs/threads.md defines it; a
// function of which nothing is said: "Program threads. Takes the recorder's lock." Those that take or give a ValueId:
// "Program threads. Holds the recorder's lock.", since a ValueId means something only as long as that lock is held.
class Recorder {
 public:
  // Any thread.
  static Recorder& instance();

  // The recorder's lock, held as long as this lives. A thread may take it again. One that must wait for it gives up the
  // GIL meanwhile. Program threads.
  class Lock {
   public:
    Lock();  // Throws std::runtime_error on a thread that runs a kernel.
    ~Lock();
    Lock(const Lock&) = delete;
  };

  // The graph value a tensor stands for now: replays its views where the root was written since.
  ValueId read(LazyTensor& tensor);
  // Makes `value` the content of what `tensor` views: folds the inverse views back into the root.
  void write(LazyTensor& tensor, ValueId value);
  // The root's storage becomes one of this layout; its elements stay in their places, others are 0. An annotation goes.
  void grow(Root& root, const Meta& whole);
  // Appends a node with these operands; returns the first of its results.
  ValueId record(CallRef call, std::vector<ValueId> inputs, const std::vector<Param>& params);
  // The graph input that stands for this data.
  ValueId input(const DataRef& data);
  // What the root of a tensor with this value holds.
  LazyValue lazy(ValueId value);
  // The same, but uploaded data is held as such: it is no result of the step.
  LazyValue held(ValueId value);
  // A number on the host (a 0-dim CPU tensor): a graph input whose data come with each run.
  ValueId host_scalar(const at::Tensor& tensor);
  // What host_scalar has for a number that is written in the program.
  static DataRef number(double value);
  // Holds the recorder's lock, also while the reference is used.
  const TensorType& type(ValueId value) const;
  // Whether the value is known to be one number everywhere.
  bool is_uniform(ValueId value) const;
  // A tensor of the device holding a CPU tensor's elements, copied now. Takes leaf locks only; where steps are only
  // planned, the recorder's.
  at::Tensor upload(const at::Tensor& host);
  // The host reads a value, which a call that is captured cannot do.
  void note_value_read();
  // A copy of what is recorded now.
  Recording recording();

  // Annotates in place (REQUIRES: lazy tensor); a recorded value gets a constraint, existing data is resharded at
  // the next flush. Without a sharding: forget what was said.
  void annotate(const at::Tensor& tensor, const Annotation& said);
  // The tensor was annotated and shows other memory now: that is annotated so, unless it is annotated already. Where
  // the spec does not fit, a warning says that the annotation is gone.
  void keep_annotation(LazyTensor& tensor, const Annotation& had);

  // Holds the recorder's lock, all three.
  int64_t ops_recorded() const;
  int64_t implicit_syncs() const;
  // Of inputs that nobody but the recorded graph holds.
  int64_t bytes_held() const;
  void reset_counters();

  // For the rooms that end the graph. Holds the recorder's lock, also while the reference is used.
  RecorderState& state() { return *state_; }

 private:
  Recorder();
  const std::unique_ptr<RecorderState> state_;
};

}  // namespace spmdx::bridge
