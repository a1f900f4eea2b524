// SPDX-License-Identifier: Apache-2.0
// Loaded annotations: which values ops join to which meshes.
#include "bridge/recorder/loaded.h"

#include <algorithm>
#include <numeric>

namespace spmdx::bridge {
namespace {

class Loaded {
 public:
  explicit Loaded(RecorderState& state) : state_(state), leader_(state.graph.values.size()) {
    std::iota(leader_.begin(), leader_.end(), 0);
  }

  void end() {
    for (const Node& node : state_.graph.nodes)
      for (const ValueId value : node.inputs)
        for (ValueId r = 0; value != kNone && r < node.call->outputs.size(); ++r) join(value, node.output + r);
    find_meshes();
    Graph& graph = state_.graph;
    for (Input& input : graph.inputs)
      if (ends(input.value, input.annotation)) input.annotation = nullptr;
    std::erase_if(graph.constraints, [&](const Constraint& c) { return ends(c.value, c.sharding); });
    for (const RootRef& ref : live_roots()) {
      Root& root = root_of(ref);
      const ValueId value = value_of(root);
      if (value == kNone || !root.annotation || !root.annotation->loaded) continue;
      if (is_of_another(value, root.annotation->sharding)) root.annotation.reset();
    }
  }

 private:
  ValueId leader(ValueId value) {
    while (leader_[value] != value) value = leader_[value] = leader_[leader_[value]];
    return value;
  }
  void join(ValueId a, ValueId b) { leader_[leader(a)] = leader(b); }

  bool is_loaded(ValueId value) const {
    const auto found = state_.said.find(value);
    return found != state_.said.end() && found->second.loaded;
  }

  // Of the annotations that were not loaded.
  void find_meshes() {
    meshes_.resize(leader_.size());
    const auto add = [&](ValueId value, const ShardingRef& sharding) {
      if (sharding) meshes_[leader(value)] = sharding->mesh;
    };
    for (const Input& input : state_.graph.inputs)
      if (!is_loaded(input.value)) add(input.value, input.annotation);
    for (const Constraint& constraint : state_.graph.constraints)
      if (!is_loaded(constraint.value)) add(constraint.value, constraint.sharding);
    for (const RootRef& ref : changed_roots()) {
      const Root& root = root_of(ref);
      if (root.annotation && !root.annotation->loaded && state_.pending(root.current))
        add(root.current.id, root.annotation->sharding);
    }
  }
  bool is_of_another(ValueId value, const ShardingRef& sharding) {
    const MeshRef& mesh = meshes_[leader(value)];
    return mesh && sharding && !(*mesh == *sharding->mesh);
  }
  bool ends(ValueId value, const ShardingRef& sharding) { return is_loaded(value) && is_of_another(value, sharding); }

  // What a root shows in the graph; kNone: it has no part in it.
  ValueId value_of(const Root& root) const {
    if (state_.pending(root.current)) return root.current.id;
    const auto found = state_.input_of.find(root.current.data.get());
    return found == state_.input_of.end() ? kNone : state_.graph.inputs[found->second].value;
  }

  RecorderState& state_;
  std::vector<ValueId> leader_;  // by value: another one that ops join it to; in the end the same for all of them
  std::vector<MeshRef> meshes_;  // by leader
};

}  // namespace

void end_loaded_annotations(RecorderState& state) {
  if (std::ranges::any_of(state.said, [](const auto& entry) { return entry.second.loaded; })) Loaded(state).end();
}

}  // namespace spmdx::bridge
