// SPDX-License-Identifier: Apache-2.0
// The end of a graph: which values leave it, what they share their layout with, and its mesh.
#include "bridge/step/finish.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "bridge/python/source.h"
#include "bridge/recorder/engine.h"
#include "bridge/recorder/schedules.h"
#include "graph/rewrite.h"

namespace spmdx::bridge {
namespace {

std::string annotated_at(SourceId source) {
  const std::string line = source_text(source);
  return line.empty() ? "" : " (annotated at " + line + ")";
}

// The mesh that all annotations of a step agree on.
struct Agreed {
  MeshRef mesh;
  SourceId source = 0;  // of the annotation that said it

  void add(ShardingRef sharding, SourceId said_at) {
    if (!sharding || (mesh && *mesh == *sharding->mesh)) return;
    if (mesh) refuse(*sharding->mesh, said_at);
    mesh = sharding->mesh;
    source = said_at;
  }

  [[noreturn]] void refuse(const Mesh& other, SourceId said_at) const {
    const std::string line = source_text(current_source());
    throw ShardingError(
        (line.empty() ? "" : line + ": ") + "one step uses tensors of two meshes, " + mesh->str() +
        annotated_at(source) + " and " + other.str() + annotated_at(said_at) +
        ". Expected one mesh for all that is computed together. Annotate all of it on one of them: call "
        "spmdx.mark_sharding, or spmdx.nn.pipeline for a model of stages, with that mesh.");
  }
};

void untie(Output& output) {
  output.tied = kNone;
  output.donates = false;
}

// Whether data lie as it is written, on devices of a kind that was chosen for them.
bool are_placed(const ShardingRef& lie, const ShardingRef& written) {
  if (!lie || lie->place.whole() || !written->place.whole() || lie->place.host != written->place.host) return false;
  if (!(*lie->mesh == *written->mesh) || lie->place.axis != lie->mesh->axis_index(engine().kinds_axis())) return false;
  return on(written, lie->place) == lie;
}

// Whether the root holds data that does not lie as the user has written since.
bool must_move(const Root& root) {
  if (!root.annotation || !root.current.data || has_failed(*root.current.data)) return false;
  const ShardingRef lie = root.current.data->sharding(), &written = root.annotation->sharding;
  return lie != written && !are_placed(lie, written);
}

// The input that the root's value is to lie like: the root's own previous value, or the leaf of a gradient. kNone:
// there is none.
uint32_t tie_of(const RecorderState& state, const Root& root, const GradientInputs& gradients) {
  if (root.previous && root.previous->type().shape == root.base->sizes) {
    if (auto found = state.input_of.find(root.previous.get()); found != state.input_of.end()) return found->second;
  }
  auto found = gradients.find(&root);
  return found == gradients.end() ? kNone : found->second;
}

ShardingRef annotation_of_tie(const Graph& graph, uint32_t tied) {
  return tied == kNone ? nullptr : graph.inputs[tied].annotation;
}

// Annotated data that lies otherwise leaves the step as it was annotated. Data that is annotated for another mesh needs
// a step of its own: returns whether there is any.
bool add_moves(RecorderState& state, MeshRef& mesh, std::vector<RootRef>& owners, std::vector<Output>& outputs) {
  bool more = false;
  for (auto& ref : changed_roots()) {
    Root& root = root_of(ref);
    if (!must_move(root)) continue;
    const MeshRef& wanted = root.annotation->sharding->mesh;
    if (mesh && !(*mesh == *wanted)) {
      more = true;
      continue;
    }
    mesh = wanted;
    const ValueId value = state.read(root);
    root.previous = root.current.data;
    root.current = {state.epoch, value, nullptr};
    outputs.push_back(output_of(state, root, {}));
    owners.push_back(std::move(ref));
  }
  return more;
}

// An output is tied only to an input that lies on the step's mesh. That input is needed then, also where no op reads
// it, as a parameter of which only the gradient is computed.
void need_ties(const RecorderState& state, MeshRef& mesh, std::vector<Output>& outputs, std::vector<bool>& needed) {
  for (Output& output : outputs) {
    const ShardingRef tie = annotation_of_tie(state.graph, output.tied);
    if (tie && !(*tie->mesh == *mesh)) untie(output);
    if (output.tied == kNone) continue;
    const ShardingRef layout = state.inputs[output.tied]->sharding();
    if (layout && !mesh) mesh = layout->mesh;
    if (!layout || *mesh == *layout->mesh) needed[state.graph.inputs[output.tied].value] = true;
  }
}

// By value: the mesh of an annotation from which the value is computed, or with `of_data` the mesh of data from which
// it is computed. Null: none is known.
std::vector<const Mesh*> meshes(const RecorderState& state, bool of_data) {
  const Graph& graph = state.graph;
  std::vector<const Mesh*> found(graph.values.size());
  auto add = [&](ValueId value, const ShardingRef& sharding) {
    if (sharding && !found[value]) found[value] = sharding->mesh.get();
  };
  for (const Constraint& constraint : graph.constraints) add(constraint.value, constraint.sharding);
  for (size_t i = 0; i < graph.inputs.size(); ++i)
    add(graph.inputs[i].value, of_data ? state.inputs[i]->sharding() : graph.inputs[i].annotation);
  for (const Node& node : graph.nodes)
    for (ValueId result = node.output; result < node.output + node.call->outputs.size(); ++result)
      for (ValueId value : node.inputs)
        if (!found[result]) found[result] = found[value];
  return found;
}

// Gives the graph's inputs the layouts of their data, and returns the data of those that stay. An input that nobody
// needs is left out if it lies on another mesh, or if its data may be gone. An input that was read before it was
// annotated anew for another mesh is data that comes from that mesh, without an annotation.
std::vector<DataRef> keep_inputs(Graph& done, const RecorderState& state, const std::vector<bool>& needed) {
  std::vector<uint32_t> place(done.inputs.size(), kNone);
  std::vector<Input> kept;
  std::vector<DataRef> data_of_inputs;
  for (size_t i = 0; i < done.inputs.size(); ++i) {
    Input input = done.inputs[i];
    input.physical = state.inputs[i]->sharding();
    const bool is_needed = needed[input.value];
    const bool is_of_other_mesh = input.annotation && done.mesh && !(*input.annotation->mesh == *done.mesh);
    if (!is_needed || is_of_other_mesh) input.annotation = nullptr;
    const bool lies_elsewhere = input.physical && !(done.mesh && *input.physical->mesh == *done.mesh);
    if (!is_needed && (lies_elsewhere || state.uploads.swept)) continue;
    place[i] = static_cast<uint32_t>(kept.size());
    kept.push_back(std::move(input));
    data_of_inputs.push_back(state.inputs[i]);
  }
  done.inputs = std::move(kept);
  for (Output& output : done.outputs) {
    if (output.tied == kNone) continue;
    if (place[output.tied] == kNone) {
      untie(output);
    } else {
      output.tied = place[output.tied];
    }
  }
  return data_of_inputs;
}

}  // namespace

Output output_of(const RecorderState& state, const Root& root, const GradientInputs& gradients) {
  Output output{root.current.id, nullptr, kNone, false, 0, false};
  if (state.graph.values[output.value].producer != kNone) output.tied = tie_of(state, root, gradients);
  output.donates = output.tied != kNone && root.previous == state.inputs[output.tied];
  if (!root.annotation) return output;
  output.annotation = root.annotation->sharding;
  output.source = root.annotation->source;
  output.state = root.annotation->state;
  return output;
}

MeshRef mesh_of(const RecorderState& state, const std::vector<Output>& outputs, const std::vector<bool>& needed) {
  const Graph& graph = state.graph;
  Agreed agreed;
  for (const Output& output : outputs) agreed.add(output.annotation, output.source);
  for (const Input& input : graph.inputs) {
    if (needed[input.value]) agreed.add(input.annotation, input.source);
  }
  for (const Constraint& constraint : graph.constraints) {
    if (needed[constraint.value]) agreed.add(constraint.sharding, constraint.source);
  }
  MeshRef mesh = std::move(agreed.mesh);
  for (size_t i = 0; i < outputs.size() && !mesh; ++i) {
    if (const ShardingRef tie = annotation_of_tie(graph, outputs[i].tied)) mesh = tie->mesh;
  }
  for (size_t i = 0; i < graph.inputs.size() && !mesh; ++i) {
    const ShardingRef layout = state.inputs[i]->sharding();
    if (layout && needed[graph.inputs[i].value]) mesh = layout->mesh;
  }
  return mesh;
}

std::vector<std::vector<RootRef>> pending_by_mesh(const RecorderState& state, const GradientInputs& gradients) {
  const std::vector<const Mesh*> annotated = meshes(state, false);
  std::vector<const Mesh*> data;  // found where nothing else tells
  auto mesh_for = [&](const Root& root) -> const Mesh* {
    if (root.annotation) return root.annotation->sharding->mesh.get();
    if (annotated[root.current.id]) return annotated[root.current.id];
    if (const ShardingRef tie = annotation_of_tie(state.graph, tie_of(state, root, gradients))) return tie->mesh.get();
    if (data.empty()) data = meshes(state, true);
    return data[root.current.id];
  };
  std::vector<std::pair<const Mesh*, std::vector<RootRef>>> groups;
  for (auto& ref : changed_roots()) {
    const Root& root = root_of(ref);
    if (!state.pending(root.current)) continue;
    const Mesh* mesh = mesh_for(root);
    auto same = std::find_if(groups.begin(), groups.end(), [&](const auto& group) {
      return group.first == mesh || !group.first || !mesh || *group.first == *mesh;
    });
    if (same == groups.end()) same = groups.insert(groups.end(), {mesh, {}});
    if (!same->first) same->first = mesh;
    same->second.push_back(std::move(ref));
  }
  std::vector<std::vector<RootRef>> result(groups.empty() ? 1 : 0);
  for (auto& [mesh, owners] : groups) {
    std::stable_sort(owners.begin(), owners.end(),
                     [](auto& a, auto& b) { return root_of(a).current.id < root_of(b).current.id; });
    result.push_back(std::move(owners));
  }
  return result;
}

FinishedGraph finish_graph(RecorderState& state, std::vector<RootRef> owners, const GradientInputs& gradients) {
  FinishedGraph done;
  std::vector<Output> outputs;
  for (const auto& owner : owners) outputs.push_back(output_of(state, root_of(owner), gradients));
  std::vector<bool> needed = needed_values(state.graph, outputs);
  MeshRef mesh = mesh_of(state, outputs, needed);
  need_ties(state, mesh, outputs, needed);
  done.more = add_moves(state, mesh, owners, outputs);
  needed.resize(state.graph.values.size(), true);
  for (const Output& output : outputs) needed[output.value] = true;
  done.graph = state.graph;
  done.graph.mesh = std::move(mesh);
  done.graph.schedule = one_schedule(state.said, done.graph);
  if (const std::string axis = engine().kinds_axis(); done.graph.mesh && done.graph.mesh->axis_index(axis) >= 0)
    done.graph.kinds = axis;
  done.graph.outputs = std::move(outputs);
  std::erase_if(done.graph.constraints, [&](const Constraint& c) { return !needed[c.value]; });
  done.data_of_inputs = keep_inputs(done.graph, state, needed);
  if (state.uploads.swept) drop_dead(done.graph);  // what read inputs that are left out
  done.owners = std::move(owners);
  return done;
}

}  // namespace spmdx::bridge
