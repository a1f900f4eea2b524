// SPDX-License-Identifier: Apache-2.0
// Interleaving: finds the ops on the merged dim, and reorders rows at the borders.
#include "passes/rewrites/merged_dims.h"

#include <algorithm>
#include <unordered_map>

#include "graph/rewrite.h"
#include "graph/rows.h"
#include "passes/strategy/elementwise.h"
#include "passes/strategy/strategy.h"
#include "rules/build/builder.h"
#include "rules/build/op_builder.h"
#include "rules/lookup.h"
#include "rules/rule/row.h"

namespace spmdx {
namespace {

bool is_view(const Node& node) { return rules::form_of(*node.call) == rules::Form::view; }

struct DimOfValue {
  ValueId value;
  size_t dim;
};

ValueId value_at(const Node& node, size_t tensor) {
  return tensor < node.inputs.size() ? node.inputs[tensor]
                                     : node.output + static_cast<ValueId>(tensor - node.inputs.size());
}

// The first factor of this dim that is cut although one before it is not split into single elements.
std::optional<Merge> blocked(const OpContext& op, const std::vector<int>& factors, const Strategy& strategy) {
  Merge merge;
  bool open = true;
  size_t i = 0;
  for (; i < factors.size(); ++i) {
    const int64_t size = op.rule->factors[static_cast<size_t>(factors[i])].size;
    const DimSharding& cut = strategy.cuts[static_cast<size_t>(factors[i])];
    if (!cut.empty() && !open) break;
    merge.outer *= size;
    if (size > 1) open = open && !cut.empty() && op.mesh->group_size(sub_axis_set(cut.sub_axes)) == size;
  }
  if (i == factors.size()) return std::nullopt;
  merge.cut = op.rule->factors[static_cast<size_t>(factors[i])].size;
  for (++i; i < factors.size(); ++i) merge.inner *= op.rule->factors[static_cast<size_t>(factors[i])].size;
  return merge;
}

bool selects(const Node& node, size_t dim) {
  return rules::form_of(*node.call) == rules::Form::select &&
         std::get<int64_t>(node.call->args.at(1)) == static_cast<int64_t>(dim);
}

// The dim that a view splits into pieces × rest, where each reader takes one piece: the pieces should not be cut.
std::optional<size_t> dim_of_pieces(const Graph& graph, const Node& node, const std::vector<NodeId>& readers) {
  const Shape &in = node.call->inputs[0].shape, &out = node.call->outputs[0].shape;
  if (out.size() != in.size() + 1 || readers.empty()) return std::nullopt;
  const auto dim = static_cast<size_t>(std::mismatch(in.begin(), in.end(), out.begin()).first - in.begin());
  if (dim == in.size() ||
      !std::equal(in.begin() + static_cast<long>(dim) + 1, in.end(), out.begin() + static_cast<long>(dim) + 2))
    return std::nullopt;
  const auto one_piece = [&](NodeId reader) { return selects(graph.nodes[reader], dim); };
  if (!std::all_of(readers.begin(), readers.end(), one_piece)) return std::nullopt;
  return dim;
}

// Calls found(merge, value, dim) for every merged dim that a view cannot, or should not, lay out like its other side.
template <class Found>
void each_blocked(const Graph& graph, const Found& found) {
  const std::vector<std::vector<NodeId>> readers = users(graph);
  for (const Node& node : graph.nodes) {
    if (!is_view(node)) continue;
    if (const auto dim = dim_of_pieces(graph, node, readers[node.output])) {
      const Shape& out = node.call->outputs[0].shape;
      if (rules::is_cut(graph, node.inputs[0], *dim)) {
        found(Merge{out[*dim], out[*dim + 1], 1, true}, node.inputs[0], *dim);
        continue;
      }
    }
    const OpRuleRef rule = rule_for(node.call);
    const OpContext op{graph.mesh, node.call.get(), rule.get(), false};
    for (size_t from = 0; from < 2; ++from) {
      const ShardingRef sharding = graph.values[value_at(node, from)].sharding;
      if (!sharding || sharding->dim_sub_axes() == 0) continue;
      const Strategy strategy = project(op, from, sharding);
      const TensorFactors& dims = op.factors(1 - from);
      for (size_t d = 0; d < dims.size(); ++d)
        if (auto merge = blocked(op, dims[d], strategy)) found(*merge, value_at(node, 1 - from), d);
    }
  }
}

// By node: whether it makes new state of old state, element by element, as optimizers do.
std::vector<bool> state_updates(const Graph& graph) {
  std::vector<OpRuleRef> rules;
  for (const Node& node : graph.nodes) rules.push_back(rule_for(node.call));
  const std::vector<const Output*> state =
      becomes_element_by_element(graph, rules, [](const Output& output) { return output.tied != kNone; });
  std::vector<bool> old(graph.values.size()), updates(graph.nodes.size());
  for (const Input& input : graph.inputs) old[input.value] = input.state;
  for (NodeId node = 0; node < updates.size(); ++node) {
    const Node& at = graph.nodes[node];
    for (size_t i = 0; state[at.output] && i < at.inputs.size(); ++i)
      if (old[at.inputs[i]] && rules[node]->inputs[i] == rules[node]->outputs[0]) updates[node] = true;
    if (updates[node]) old[at.output] = true;
  }
  return updates;
}

// The nodes and values that hold the rows. State keeps its order: the step would have to bring it back.
class Island {
 public:
  Island(const Graph& graph, int64_t rows)
      : graph_(graph),
        rows_(rows),
        users_(users(graph)),
        updates_(state_updates(graph)),
        inside_(graph.nodes.size(), 0) {}

  // False where a value would hold rows in two dims.
  bool grow(std::vector<DimOfValue> seeds) {
    std::vector<DimOfValue> open = std::move(seeds);
    while (!open.empty()) {
      const DimOfValue at = open.back();
      open.pop_back();
      const auto [known, fresh] = dims_.try_emplace(at.value, at.dim);
      if (!fresh && known->second != at.dim) return false;
      if (!fresh) continue;
      const NodeId producer = graph_.values[at.value].producer;
      if (producer != kNone && !visit(producer, at, open)) return false;
      for (NodeId user : users_[at.value])
        if (!visit(user, at, open)) return false;
    }
    return true;
  }

  bool holds(ValueId value) const { return dims_.contains(value); }
  size_t dim(ValueId value) const { return dims_.at(value); }
  bool inside(NodeId node) const { return inside_[node] == kInside; }

 private:
  enum : char { kInside = 1, kBorder = 2 };

  // Whether the op treats the rows of `at` one by one, or sums over them; then all tensors that have these rows
  // join.
  bool visit(NodeId id, const DimOfValue& at, std::vector<DimOfValue>& open) {
    const Node& node = graph_.nodes[id];
    const OpRuleRef rule = rule_for(node.call);
    const size_t tensors = rule->inputs.size() + rule->outputs.size();
    const auto factors = [&](size_t t) -> const TensorFactors& {
      return t < rule->inputs.size() ? rule->inputs[t] : rule->outputs[t - rule->inputs.size()];
    };
    for (size_t t = 0; t < tensors; ++t) {
      if (value_at(node, t) != at.value) continue;
      const std::vector<int>& dim = factors(t)[at.dim];
      const bool in = dim.size() == 1 && !updates_[id] && follows(*rule, node, static_cast<size_t>(dim[0]));
      if (inside_[id] && inside_[id] != (in ? kInside : kBorder)) return false;
      inside_[id] = in ? kInside : kBorder;
      for (size_t other = 0; in && other < tensors; ++other)
        for (size_t d = 0; d < factors(other).size(); ++d) {
          const std::vector<int>& others = factors(other)[d];
          if (std::find(others.begin(), others.end(), dim[0]) == others.end()) continue;
          if (others.size() > 1) return false;
          open.push_back({value_at(node, other), d});
        }
    }
    return true;
  }

  bool follows(const OpRule& rule, const Node& node, size_t factor) const {
    const Factor& at = rule.factors[factor];
    if (at.size != rows_ || rule.random || rule.fallback) return false;
    if (at.kind != FactorKind::pass && at.kind != FactorKind::reduce) return false;
    return !rule.localise || is_view(node);  // an op that gets positions depends on the order
  }

  const Graph& graph_;
  const int64_t rows_;
  std::vector<std::vector<NodeId>> users_;
  std::vector<bool> updates_;
  std::vector<char> inside_;
  std::unordered_map<ValueId, size_t> dims_;
};

class Turn {
 public:
  Turn(const Graph& graph, const Merge& merge, const Island& island)
      : graph_(graph), merge_(merge), island_(island), rewrite_(graph), turned_(graph.values.size(), kNone) {}

  Graph run() {
    for (NodeId id = 0; id < graph_.nodes.size(); ++id) visit(id);
    for (const Output& output : graph_.outputs) plain(output.value, output.source);
    return rewrite_.finish();
  }

 private:
  ValueId emit(const char* op, ValueId from, std::vector<int64_t> numbers, Shape shape, SourceId source) {
    Builder builder(rewrite_.to(), source);
    const TensorType out{builder.type(from).dtype, std::move(shape), false};
    return builder.emit(op, {TensorArg{0}, std::move(numbers)}, {from}, {out});
  }

  ValueId view(ValueId from, const Shape& shape, SourceId source) {
    return rewrite_.to().values[from].type.shape == shape ? from : emit("aten.view", from, shape, shape, source);
  }

  // `shape` with dim `dim` split in three.
  static Shape split(Shape shape, size_t dim, int64_t a, int64_t b, int64_t c) {
    shape[dim] = a;
    const auto at = shape.begin() + static_cast<long>(dim) + 1;
    shape.insert(at, {b, c});
    return shape;
  }

  // The same elements with the first two of the three parts of the dim swapped.
  ValueId swap(ValueId from, const Shape& shape, size_t dim, int64_t a, int64_t b, SourceId source) {
    std::vector<int64_t> order;
    for (size_t d = 0; d < shape.size() + 2; ++d) order.push_back(static_cast<int64_t>(d));
    std::swap(order[dim], order[dim + 1]);
    const ValueId parts = view(from, split(shape, dim, a, b, merge_.inner), source);
    return emit("aten.permute", parts, order, split(shape, dim, b, a, merge_.inner), source);
  }

  // The same rows in the other order, each taken from the device that holds it.
  ValueId take(ValueId from, size_t dim, int64_t a, int64_t b, int64_t parts, SourceId source) {
    const Shape shape = rewrite_.to().values[from].type.shape;
    std::vector<int64_t> rows;
    for (int64_t i = 0; i < b; ++i)
      for (int64_t j = 0; j < a; ++j)
        for (int64_t k = 0; k < merge_.inner; ++k) rows.push_back((j * b + i) * merge_.inner + k);
    Builder builder(rewrite_.to(), source);
    return builder.emit(std::string(kTakeRows), {TensorArg{0}, static_cast<int64_t>(dim), std::move(rows), parts},
                        {from}, {builder.type(from)});
  }

  // Parts that the dim of pieces is cut into, of which some would hold rows of two pieces but not all of either: no
  // view lays that out. 1 where a view does.
  int64_t unequal_parts(ValueId value) const {
    const size_t dim = island_.dim(value);
    if (!merge_.pieces || !rules::is_cut(graph_, value, dim)) return 1;
    const int64_t parts = graph_.mesh->group_size(sub_axis_set(graph_.values[value].sharding->dims[dim].sub_axes));
    return merge_.outer % parts && parts % merge_.outer ? parts : 1;
  }

  // A value of the island with its rows reordered. Where a view merges them, it is made from the view's operand.
  ValueId turned(ValueId value, SourceId source) {
    ValueId& made = turned_[value];
    if (made != kNone) return made;
    const NodeId producer = graph_.values[value].producer;
    const bool merges = producer != kNone && is_view(graph_.nodes[producer]);
    const ValueId from = merges ? plain(graph_.nodes[producer].inputs[0], source) : plain(value, source);
    if (const int64_t cuts = unequal_parts(value); cuts > 1 && !merges)
      return turned_[value] = take(from, island_.dim(value), merge_.outer, merge_.cut, cuts, source);
    const Shape& shape = graph_.values[value].type.shape;
    const ValueId swapped = swap(from, shape, island_.dim(value), merge_.outer, merge_.cut, source);
    return turned_[value] = view(swapped, shape, source);
  }

  ValueId swapped_back(ValueId value, SourceId source) {
    return swap(turned_[value], graph_.values[value].type.shape, island_.dim(value), merge_.cut, merge_.outer, source);
  }

  ValueId plain(ValueId value, SourceId source) {
    if (rewrite_.at(value) != kNone) return rewrite_.at(value);
    const int64_t cuts = unequal_parts(value);
    rewrite_.map(value, cuts > 1 ? take(turned_[value], island_.dim(value), merge_.cut, merge_.outer, cuts, source)
                                 : view(swapped_back(value, source), graph_.values[value].type.shape, source));
    return rewrite_.at(value);
  }

  void visit(NodeId id) {
    const Node& node = graph_.nodes[id];
    if (!island_.inside(id)) {
      if (is_view(node) && turned_[node.inputs[0]] != kNone) {
        const ValueId parts = swapped_back(node.inputs[0], node.source);
        rewrite_.map(node.output, view(parts, node.call->outputs[0].shape, node.source));
        return;
      }
      for (ValueId value : node.inputs) plain(value, node.source);
      rewrite_.keep(node);
      return;
    }
    std::vector<ValueId> inputs;
    for (ValueId value : node.inputs)
      inputs.push_back(island_.holds(value) ? turned(value, node.source) : plain(value, node.source));
    const ValueId made = rewrite_.to().add_node(node.call, std::move(inputs), node.source, node.param);
    rewrite_.to().nodes.back().starts_of = node.starts_of;
    rewrite_.to().nodes.back().recorded = node.recorded;
    for (size_t i = 0; i < node.call->outputs.size(); ++i) {
      const ValueId old = node.output + static_cast<ValueId>(i);
      if (island_.holds(old)) {
        turned_[old] = made + static_cast<ValueId>(i);
        if (merge_.pieces && rules::is_cut(graph_, old, island_.dim(old)))  // the rows stay cut: a part of each piece
          rewrite_.to().values[turned_[old]].hint = graph_.values[old].sharding;
      } else
        rewrite_.map(old, made + static_cast<ValueId>(i));
    }
  }

  const Graph& graph_;
  const Merge merge_;
  const Island& island_;
  Rewrite rewrite_;
  std::vector<ValueId> turned_;
};

}  // namespace

std::vector<Merge> blocked_merges(const Graph& graph) {
  std::vector<Merge> merges;
  each_blocked(graph, [&](const Merge& merge, ValueId, size_t) {
    if (std::find(merges.begin(), merges.end(), merge) == merges.end()) merges.push_back(merge);
  });
  return merges;
}

std::optional<Graph> interleave(const Graph& graph, const Merge& merge) {
  std::vector<DimOfValue> seeds;
  each_blocked(graph, [&](const Merge& other, ValueId value, size_t dim) {
    if (other == merge) seeds.push_back({value, dim});
  });
  Island island(graph, merge.outer * merge.cut * merge.inner);
  if (!island.grow(std::move(seeds))) return std::nullopt;
  for (const Constraint& constraint : graph.constraints)  // the user's sharding is for this order
    if (island.holds(constraint.value)) return std::nullopt;
  Graph turned = Turn(graph, merge, island).run();
  drop_dead(turned);
  return turned;
}

}  // namespace spmdx
