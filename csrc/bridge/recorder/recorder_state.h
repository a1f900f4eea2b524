// SPDX-License-Identifier: Apache-2.0
// What the recorder holds while a graph is recorded; shared by the files that implement it.
#pragma once
#include <exception>
#include <unordered_map>
#include <vector>

#include "bridge/tensor/annotation.h"
#include "bridge/tensor/meta.h"
#include "bridge/tensor/tensor.h"
#include "runtime/step/engine.h"

namespace spmdx::bridge {

// A step that was to compute it failed, or was planned only and a value is wanted now.
bool has_failed(const Data& data);

// A finished graph on its way to the engine.
struct PlannedPart {
  PlanRef plan;
  std::vector<DataRef> sources, outputs;
  std::vector<RootRef> owners;  // the roots of the outputs, in the same order
};

// A root that took over data which is at hand, as `copy_` of a whole tensor does: no result of a step, but it holds if
// the step does that it was written beside.
struct Rebound {
  c10::weak_intrusive_ptr<c10::StorageImpl> root;
  DataRef before;
  DataRef step;  // a result of that step; null until it is sent
};

// Every function REQUIRES the recorder's lock.
struct RecorderState {
  Graph graph;
  uint64_t epoch = 1;
  std::vector<DataRef> inputs;
  std::vector<DataRef> submitted;  // those of the finished graph
  std::vector<Param> params;
  std::unordered_map<const Data*, uint32_t> input_of;  // index into inputs
  int64_t ops = 0, implicit_syncs = 0;
  bool annotated = false;  // since the last flush: existing data may have to move
  std::vector<Rebound> rebound;

  bool pending(const LazyValue& value) const { return !value.data && value.id != kNone && value.epoch == epoch; }
  void reset();
  uint32_t tie_of(const Root& root, const std::unordered_map<const Root*, uint32_t>& gradients) const;
  std::unordered_map<const Root*, uint32_t> gradients();
  DataRef data_of(ValueId value) const;
  void annotate_input(const Root& root);
  void annotate(LazyTensor& tensor, const Annotation& annotation);
  void constrain(ValueId value, const Annotation& annotation);
  void cache(LazyTensor& tensor, ValueId value);
  ValueId read(const Root& root);
  bool must_move(const Root& root) const;
  ValueId input(const DataRef& data);
  Output output_of(const Root& root, const std::unordered_map<const Root*, uint32_t>& gradients) const;
  MeshRef mesh_of(const std::vector<Output>& outputs, const std::vector<bool>& needed) const;
  void need_ties(MeshRef& mesh, std::vector<Output>& outputs, std::vector<bool>& needed) const;
  void add_moves(MeshRef& mesh, std::vector<RootRef>& owners, std::vector<Output>& outputs);
  std::vector<const Mesh*> meshes(bool of_data) const;
  ShardingRef annotation_of_tie(uint32_t tied) const;
  std::vector<std::vector<RootRef>> pending_by_mesh(const std::unordered_map<const Root*, uint32_t>& tied) const;
  Graph finish(std::vector<RootRef>& owners, const std::unordered_map<const Root*, uint32_t>& gradients);
  void keep_inputs(Graph& done, const std::vector<bool>& needed);
  PlannedPart planned(Graph done, std::vector<DataRef> sources, std::vector<RootRef> owners);
  void send(std::vector<PlannedPart> parts);
  void submit();
  static ValueId grown(const Outgrown& from, const Meta& to, ValueId value);
  // Data from before the root grew lies as the root does now.
  void follow_growth(Root& root);
  void compute_unsharded();
  void roll_back(std::exception_ptr error);
  bool at_start_of_step() const;
  void note_rebound(Root& root, DataRef before);
  void send_rebound(const std::vector<PlannedPart>& parts);
  void undo_rebound();
};

}  // namespace spmdx::bridge
