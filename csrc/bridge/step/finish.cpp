// SPDX-License-Identifier: Apache-2.0
// The end of a graph: which values leave it, what they share their layout with, and its mesh.
#include <algorithm>

#include "base/error.h"
#include "bridge/python/source.h"
#include "bridge/recorder/recorder_state.h"
#include "bridge/tensor/tensor.h"

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
        "mark_sharding with that mesh.");
  }
};

void untie(Output& output) {
  output.tied = kNone;
  output.donates = false;
}

// What the outputs are computed from.
std::vector<bool> needed_values(const Graph& graph, const std::vector<Output>& outputs) {
  std::vector<bool> needed(graph.values.size(), false);
  for (const Output& output : outputs) needed[output.value] = true;
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    bool used = false;
    for (size_t r = 0; r < node.call->outputs.size(); ++r) used |= needed[node.output + r];
    for (ValueId value : node.inputs) needed[value] = needed[value] || used;
  }
  return needed;
}

}  // namespace

// Existing data that does not lie as the user wrote since.
bool RecorderState::must_move(const Root& root) const {
  return root.annotation && root.current.data && root.current.data->sharding() != root.annotation->sharding &&
         !has_failed(*root.current.data);
}

uint32_t RecorderState::tie_of(const Root& root, const std::unordered_map<const Root*, uint32_t>& gradients) const {
  if (root.previous && root.previous->type().shape == root.base->sizes) {
    if (auto found = input_of.find(root.previous.get()); found != input_of.end()) return found->second;
  }
  auto found = gradients.find(&root);
  return found == gradients.end() ? kNone : found->second;
}

Output RecorderState::output_of(const Root& root, const std::unordered_map<const Root*, uint32_t>& gradients) const {
  Output output{root.current.id, nullptr, kNone, false, 0, false};
  if (graph.values[output.value].producer != kNone) output.tied = tie_of(root, gradients);
  output.donates = output.tied != kNone && root.previous == inputs[output.tied];
  if (!root.annotation) return output;
  output.annotation = root.annotation->sharding;
  output.source = root.annotation->source;
  output.state = root.annotation->state;
  return output;
}

ShardingRef RecorderState::annotation_of_tie(uint32_t tied) const {
  return tied == kNone ? nullptr : graph.inputs[tied].annotation;
}

// The one mesh of what the user annotated among all that the outputs need, or else lie like. Other data may lie on any
// mesh, and moves to this one.
MeshRef RecorderState::mesh_of(const std::vector<Output>& outputs, const std::vector<bool>& needed) const {
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
    if (const ShardingRef tie = annotation_of_tie(outputs[i].tied)) mesh = tie->mesh;
  }
  for (size_t i = 0; i < graph.inputs.size() && !mesh; ++i) {
    if (const ShardingRef layout = inputs[i]->sharding(); layout && needed[graph.inputs[i].value]) mesh = layout->mesh;
  }
  return mesh;
}

// Annotated data that lies otherwise leaves the step as it was annotated. Data of another mesh waits for a step of its
// own.
void RecorderState::add_moves(MeshRef& mesh, std::vector<RootRef>& owners, std::vector<Output>& outputs) {
  annotated = false;
  for (auto& ref : live_roots()) {
    Root& root = root_of(ref);
    if (!must_move(root)) continue;
    const MeshRef& wanted = root.annotation->sharding->mesh;
    if (mesh && !(*mesh == *wanted)) {
      annotated = true;
      continue;
    }
    mesh = wanted;
    const ValueId value = read(root);
    root.previous = root.current.data;
    root.current = {epoch, value, nullptr};
    outputs.push_back(output_of(root, {}));
    owners.push_back(std::move(ref));
  }
}

// A gradient may need no value of its parameter and still lie as the parameter does, if that is on this mesh.
void RecorderState::need_ties(MeshRef& mesh, std::vector<Output>& outputs, std::vector<bool>& needed) const {
  for (Output& output : outputs) {
    if (const ShardingRef tie = annotation_of_tie(output.tied); tie && !(*tie->mesh == *mesh)) untie(output);
    if (output.tied == kNone) continue;
    const ShardingRef layout = inputs[output.tied]->sharding();
    if (layout && !mesh) mesh = layout->mesh;
    if (!layout || *mesh == *layout->mesh) needed[graph.inputs[output.tied].value] = true;
  }
}

// The mesh each value is computed on: that of an annotation it is computed from; of data where it has none, if asked
// for; null: none is known.
std::vector<const Mesh*> RecorderState::meshes(bool of_data) const {
  std::vector<const Mesh*> found(graph.values.size());
  auto add = [&](ValueId value, const ShardingRef& sharding) {
    if (sharding && !found[value]) found[value] = sharding->mesh.get();
  };
  for (const Constraint& constraint : graph.constraints) add(constraint.value, constraint.sharding);
  for (size_t i = 0; i < graph.inputs.size(); ++i)
    add(graph.inputs[i].value, of_data ? inputs[i]->sharding() : graph.inputs[i].annotation);
  for (const Node& node : graph.nodes)
    for (ValueId result = node.output; result < node.output + node.call->outputs.size(); ++result)
      for (ValueId value : node.inputs)
        if (!found[result]) found[result] = found[value];
  return found;
}

// Roots of pending values in the order they were recorded, those of each mesh together: values that have nothing to do
// with each other may lie on different meshes. At least one group, perhaps empty.
std::vector<std::vector<RootRef>> RecorderState::pending_by_mesh(
    const std::unordered_map<const Root*, uint32_t>& tied) const {
  const std::vector<const Mesh*> annotated = meshes(false);
  std::vector<const Mesh*> data;  // where nothing else tells
  auto mesh_of = [&](const Root& root) -> const Mesh* {
    if (root.annotation) return root.annotation->sharding->mesh.get();
    if (annotated[root.current.id]) return annotated[root.current.id];
    if (const ShardingRef tie = annotation_of_tie(tie_of(root, tied))) return tie->mesh.get();
    if (data.empty()) data = meshes(true);
    return data[root.current.id];
  };
  std::vector<std::pair<const Mesh*, std::vector<RootRef>>> groups;
  for (auto& ref : live_roots()) {
    const Root& root = root_of(ref);
    if (!pending(root.current)) continue;
    const Mesh* mesh = mesh_of(root);
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

// Adds outputs and the mesh. `owners` are the roots of the outputs, in the same order; data that has to move joins
// them.
Graph RecorderState::finish(std::vector<RootRef>& owners, const std::unordered_map<const Root*, uint32_t>& tied) {
  std::vector<Output> outputs;
  for (const auto& owner : owners) outputs.push_back(output_of(root_of(owner), tied));
  std::vector<bool> needed = needed_values(graph, outputs);
  MeshRef mesh = mesh_of(outputs, needed);
  need_ties(mesh, outputs, needed);
  add_moves(mesh, owners, outputs);
  needed.resize(graph.values.size(), true);
  for (const Output& output : outputs) needed[output.value] = true;
  Graph done = graph;
  done.mesh = std::move(mesh);
  done.outputs = std::move(outputs);
  std::erase_if(done.constraints, [&](const Constraint& c) { return !needed[c.value]; });
  keep_inputs(done, needed);
  return done;
}

// Inputs with the layout of their data. One that nobody needs and that lies on another mesh is left out; one that was
// read before it was annotated anew, for another mesh, is data that comes from there.
void RecorderState::keep_inputs(Graph& done, const std::vector<bool>& needed) {
  std::vector<uint32_t> place(done.inputs.size(), kNone);
  std::vector<Input> kept;
  submitted.clear();
  for (size_t i = 0; i < done.inputs.size(); ++i) {
    Input input = done.inputs[i];
    input.physical = inputs[i]->sharding();
    const bool is_needed = needed[input.value];
    const bool is_of_other_mesh = input.annotation && done.mesh && !(*input.annotation->mesh == *done.mesh);
    if (!is_needed || is_of_other_mesh) input.annotation = nullptr;
    if (!is_needed) {
      if (input.physical && !(done.mesh && *input.physical->mesh == *done.mesh)) continue;
    }
    place[i] = static_cast<uint32_t>(kept.size());
    kept.push_back(std::move(input));
    submitted.push_back(inputs[i]);
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
}

}  // namespace spmdx::bridge
