// SPDX-License-Identifier: Apache-2.0
// What the recorder holds while a graph is recorded. The rooms `recorder` and `step` share it.
#pragma once
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "bridge/recorder/capture.h"
#include "bridge/tensor/annotation.h"
#include "bridge/tensor/meta.h"
#include "bridge/tensor/tensor.h"

namespace spmdx::bridge {

// Whether a step that was to compute the data failed, or was planned only and a value is wanted now. Any thread. Takes
// Data.
bool has_failed(const Data& data);

// A root that took over data which is at hand, as `copy_` of a whole tensor does: no result of a step, but it holds if
// the step does that it was written beside.
struct Rebound {
  c10::weak_intrusive_ptr<c10::StorageImpl> root;
  DataRef before;
  DataRef step;  // a result of that step; null until it is sent
};

// By the gradients that the graph computes: the index of the input that each lies like, which is its leaf's.
using GradientInputs = std::unordered_map<const Root*, uint32_t>;

// Bytes of uploads that the graph is the first to read: batches. Parameters that need a gradient are not among them,
// nor is what the user annotated as state, since both outlive the graph. A fact of the program: the same in all
// processes.
struct UploadsRead {
  int64_t bytes = 0;
  int64_t since_sweep = 0;  // of these, what was read since inputs of dead values were last looked for
  int64_t dropped = 0;      // of these, what no live value needed, until the system gets it back
  bool swept = false;       // inputs of dead values were looked for: some may be gone
};

// All functions: Holds the recorder's lock.
struct RecorderState {
  Graph graph;                  // without outputs
  uint64_t epoch = 1;           // counts graphs: numbers of values of an older one mean nothing
  std::vector<DataRef> inputs;  // of the graph, in its order
  std::vector<Param> params;    // of the graph's nodes
  UploadsRead uploads;
  bool was_cut = false;  // the graph before was, because it grew too long: the program neither reads nor marks steps
  const void* first_op = nullptr;                      // which op recorded the graph's first node
  std::unordered_map<const Data*, uint32_t> input_of;  // index into inputs
  int64_t ops = 0, implicit_syncs = 0;
  uint32_t phase = 1;       // see Recorded
  bool annotated = false;   // since the last flush: existing data may have to move
  bool has_stages = false;  // an annotation in the graph says a stage
  // Of inputs and constrained values, where it says more than how they are cut: a schedule, or that it was loaded.
  std::map<ValueId, Annotation> said;
  std::vector<Rebound> rebound;
  std::unique_ptr<Capture> capture;  // of the call that is captured now; else null

  // Whether the value is one of the graph being recorded.
  bool pending(const LazyValue& value) const { return !value.data && value.id != kNone && value.epoch == epoch; }
  // What is recorded now; a new phase where a backward pass begins or ends.
  Recorded recorded_now();
  // Begins the next graph.
  void reset();

  // The graph input that stands for this data.
  ValueId input(const DataRef& data);
  // The data behind a value that is a graph input of the same type as its tensor; null for results of nodes.
  DataRef data_of(ValueId value) const;
  // The data became an input of the graph.
  void note_upload(Data& data);
  // Lets go of inputs that nobody else holds and no value of a live root is computed from. Their places in the graph
  // stay, so that the graph does not depend on when tensors die.
  void drop_dead_inputs();
  // Bytes of inputs that are held by nobody but this graph.
  int64_t bytes_held() const;
  // The value of a root; existing data becomes an input that carries the root's annotation.
  ValueId read(const Root& root);
  // `value` is what the tensor shows; the annotation of a view is a constraint on it.
  void cache(LazyTensor& tensor, ValueId value);

  // The root's annotation on the input that stands for its data. REQUIRES: there are both.
  void annotate_input(const Root& root);
  void annotate(LazyTensor& tensor, const Annotation& annotation);
  void constrain(ValueId value, const Annotation& annotation);
  void note_said(ValueId value, const Annotation& annotation);

  // Reads the leaves, also those whose values the graph does not need.
  GradientInputs gradients();

  // `value` in the next layout of a root that grew; elements that it does not have are 0.
  static ValueId grown(const Outgrown& from, const Meta& to, ValueId value);
  // Data from before the root grew lies as the root does now.
  void follow_growth(Root& root);

  // Whether no step that is recorded or runs may still fail.
  bool at_start_of_step() const;
  // The root took over data beside the steps; it held `before`.
  void note_rebound(Root& root, DataRef before);
  // The step that was recorded is submitted, and `step` is one of its results (null: it has none).
  void send_rebound(const DataRef& step);
  // Roots go back to what they held, where the step that they were written beside failed.
  void undo_rebound();
};

}  // namespace spmdx::bridge
