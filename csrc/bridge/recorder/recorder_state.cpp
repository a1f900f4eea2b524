// SPDX-License-Identifier: Apache-2.0
// Values of roots and data in the graph being recorded.
#include "bridge/recorder/recorder_state.h"

#include "base/error.h"
#include "bridge/tensor/abstract.h"

namespace spmdx::bridge {

bool has_failed(const Data& data) {
  if (data.is_abstract()) return !planning_only();
  if (!data.ready()) return false;
  try {
    data.wait();
    return false;
  } catch (...) {
    return true;
  }
}

void RecorderState::reset() {
  Graph next;  // the next step is likely as long as this one
  next.values.reserve(graph.values.size());
  next.nodes.reserve(graph.nodes.size());
  next.inputs.reserve(graph.inputs.size());
  graph = std::move(next);
  inputs.clear();
  params.clear();
  input_of.clear();
  annotated = false;
  has_stages = false;
  said.clear();
  phase = 1;
  uploads = {};
  ++epoch;
}

void RecorderState::annotate_input(const Root& root) {
  Input& input = graph.inputs[input_of.at(root.current.data.get())];
  input.annotation = root.annotation->sharding;
  has_stages |= !input.annotation->place.whole();
  input.source = root.annotation->source;
  input.state = root.annotation->state;
  note_said(input.value, *root.annotation);
}

ValueId RecorderState::read(const Root& root) {
  if (!root.current.data) {
    internal_check(pending(root.current), "a tensor holds a value of a graph that has ended");
    return root.current.id;
  }
  if (root.annotation && root.annotation->state) root.current.data->is_first_read();  // it outlives the graph
  if (capture) capture->note_read(root);
  const ValueId value = input(root.current.data);
  if (root.annotation && !graph.inputs[input_of.at(root.current.data.get())].annotation) annotate_input(root);
  return value;
}

DataRef RecorderState::data_of(ValueId value) const {
  if (graph.values[value].producer != kNone || graph.values[value].type.wrapped_number) return nullptr;
  for (size_t i = graph.inputs.size(); i-- > 0;) {
    if (graph.inputs[i].value == value) return inputs[i];
  }
  return nullptr;
}

ValueId RecorderState::input(const DataRef& data) {
  if (data->is_abstract() && !planning_only()) refuse_values();
  auto [found, fresh] = input_of.emplace(data.get(), inputs.size());
  if (fresh) {
    graph.add_input(data->type());
    inputs.push_back(data);
    note_upload(*data);
  }
  return graph.inputs[found->second].value;
}

void RecorderState::cache(LazyTensor& tensor, ValueId value) {
  tensor.cached = {epoch, value, nullptr};
  tensor.cached_writes = tensor.root().writes;
  if (tensor.of_view) constrain(value, *tensor.of_view);
}

}  // namespace spmdx::bridge
