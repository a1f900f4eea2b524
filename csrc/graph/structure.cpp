// SPDX-License-Identifier: Apache-2.0
// Structure: compares and hashes calls, and graphs but for what a plan leaves open.
#include <algorithm>
#include <bit>
#include <utility>

#include "graph/graph.h"
#include "graph/starts.h"

namespace spmdx {
namespace {

// Doubles are compared and hashed by their bits, so that a NaN equals itself, and 0.0 differs from -0.0.
uint64_t bits(double value) { return std::bit_cast<uint64_t>(value); }

bool equal(const Arg& a, const Arg& b) {
  if (a.index() != b.index()) return false;
  if (const auto* x = std::get_if<double>(&a)) return bits(*x) == bits(std::get<double>(b));
  if (const auto* x = std::get_if<std::vector<double>>(&a)) {
    return std::ranges::equal(*x, std::get<std::vector<double>>(b), {}, bits, bits);
  }
  return a == b;
}

struct HashArg {
  uint64_t operator()(std::monostate) const { return 0; }
  uint64_t operator()(const TensorArg& arg) const { return arg.input; }
  uint64_t operator()(const TensorListArg& arg) const { return list(arg.inputs); }
  uint64_t operator()(bool arg) const { return arg; }
  uint64_t operator()(int64_t arg) const { return static_cast<uint64_t>(arg); }
  uint64_t operator()(double arg) const { return bits(arg); }
  uint64_t operator()(const std::string& arg) const { return std::hash<std::string>{}(arg); }
  uint64_t operator()(DType arg) const { return static_cast<uint64_t>(arg); }
  uint64_t operator()(const RealParam& arg) const { return arg.index; }
  uint64_t operator()(const IntParam& arg) const { return arg.index + (static_cast<uint64_t>(arg.plus) << 32); }
  uint64_t operator()(const OpaqueArg& arg) const { return (*this)(arg.text); }
  template <class T>
  uint64_t operator()(const std::vector<T>& arg) const {
    return list(arg);
  }

 private:
  template <class T>
  uint64_t list(const std::vector<T>& items) const {
    uint64_t h = items.size();
    for (const auto& item : items) h = hash_combine(h, HashArg{}(static_cast<Item<T>>(item)));
    return h;
  }
  template <class T>
  using Item = std::conditional_t<std::is_same_v<T, uint32_t>, int64_t, T>;
};

// Of a call without its start; where it ends becomes how long it is.
uint64_t hash_kind(const Call& call) {
  uint64_t h = std::hash<std::string>{}(call.op);
  for (size_t i = 0; i < call.args.size(); ++i) {
    const Arg& arg = call.args[i];
    h = hash_combine(h, arg.index());
    if (!call.start || i < call.start->arg || i > call.start->last())
      h = hash_combine(h, std::visit(HashArg{}, arg));
    else if (i > call.start->arg)
      h = hash_combine(h, static_cast<uint64_t>(length_of(call)));
  }
  h = hash_combine(h, call.inputs.size());
  for (const TensorType& type : call.inputs) h = hash_combine(h, hash(type));
  h = hash_combine(h, call.outputs.size());
  for (const TensorType& type : call.outputs) h = hash_combine(h, hash(type));
  return hash_combine(h, call.num_params);
}

uint64_t hash_start(const Call& call) {
  return call.start ? hash_combine(call.kind, std::visit(HashArg{}, call.args[call.start->arg])) : call.kind;
}

bool same_arguments(const Call& a, const Call& b) {
  for (size_t i = 0; i < a.args.size(); ++i) {
    const bool open = a.start && i >= a.start->arg && i <= a.start->last();
    if (open ? a.args[i].index() != b.args[i].index() : !equal(a.args[i], b.args[i])) return false;
  }
  return !a.start || (length_of(a) == length_of(b) && num_starts(a) == num_starts(b));
}

// Hashes the content, not the pointer, so that every process computes the same number.
uint64_t hash_sharding(ShardingRef sharding) {
  if (!sharding) return 0;
  uint64_t h = hash_combine(1 + sharding->partial, static_cast<uint64_t>(sharding->reduction));
  for (const DimSharding& dim : sharding->dims) {
    h = hash_combine(h, static_cast<uint64_t>(dim.tile) + dim.sub_axes.size());
    for (SubAxisId sub_axis : dim.sub_axes) h = hash_combine(h, sub_axis);
  }
  return sharding->place.plain() ? h : hash_combine(h, hash(sharding->place));
}

uint64_t hash_node(uint64_t h, const Node& node) {
  h = hash_combine(h, node.call->kind);
  for (ValueId value : node.inputs) h = hash_combine(h, value);
  h = hash_combine(hash_combine(h, node.output), node.sub_axes);
  return node.call->num_params ? hash_combine(h, node.param) : h;
}

bool same_mesh(const MeshRef& a, const MeshRef& b) { return a == b || (a && b && *a == *b); }

bool same_nodes(const Node& a, const Node& b) {
  return (a.call == b.call || same_kind(*a.call, *b.call)) && a.inputs == b.inputs && a.output == b.output &&
         a.sub_axes == b.sub_axes && (a.call->num_params == 0 || a.param == b.param);
}

bool same_inputs(const Graph& a, const Graph& b) {
  return std::ranges::equal(a.inputs, b.inputs, [&](const Input& x, const Input& y) {
    return x.value == y.value && x.physical == y.physical && x.annotation == y.annotation && x.state == y.state &&
           a.values[x.value].type == b.values[y.value].type;
  });
}

bool same_outputs(const Output& a, const Output& b) {
  return a.value == b.value && a.annotation == b.annotation && a.tied == b.tied && a.donates == b.donates &&
         a.state == b.state;
}

bool same_constraints(const Constraint& a, const Constraint& b) {
  return a.value == b.value && a.sharding == b.sharding && a.state == b.state;
}

}  // namespace

bool same_kind(const Call& a, const Call& b) {
  return a.kind == b.kind && a.start == b.start && a.op == b.op && a.num_params == b.num_params &&
         a.inputs == b.inputs && a.outputs == b.outputs && a.args.size() == b.args.size() && same_arguments(a, b);
}

bool Call::operator==(const Call& other) const {
  return op == other.op && num_params == other.num_params && inputs == other.inputs && outputs == other.outputs &&
         std::ranges::equal(args, other.args, equal);
}

CallRef seal(Call call) {
  call.start = start_row(call);
  call.kind = hash_kind(call);
  call.hash = hash_start(call);
  return std::make_shared<const Call>(std::move(call));
}

uint64_t structural_hash(const Graph& graph) {
  uint64_t h = graph.mesh ? graph.mesh->hash() : 0;
  for (const Input& input : graph.inputs) {
    h = hash_combine(hash_combine(h, input.value), hash(graph.values[input.value].type));
    h = hash_combine(hash_combine(h, hash_sharding(input.physical)), hash_sharding(input.annotation));
    h = hash_combine(h, input.state);
  }
  for (const Node& node : graph.nodes) h = hash_node(h, node);
  for (const Output& output : graph.outputs) {
    h = hash_combine(hash_combine(h, output.value), hash_sharding(output.annotation));
    h = hash_combine(h, uint64_t{output.tied} * 4 + output.donates * 2 + output.state);
  }
  for (const Constraint& constraint : graph.constraints) {
    h = hash_combine(hash_combine(h, constraint.value), hash_sharding(constraint.sharding));
    h = hash_combine(h, constraint.state);
  }
  if (!graph.schedule.empty()) h = hash_combine(h, std::hash<std::string>{}(graph.schedule));
  if (!graph.kinds.empty()) h = hash_combine(hash_combine(h, 1), std::hash<std::string>{}(graph.kinds));
  return hash_combine(h, graph.num_params);
}

uint64_t wiring_hash(const Graph& graph) {
  uint64_t h = hash_combine(graph.inputs.size(), graph.outputs.size());
  for (const Node& node : graph.nodes) {
    h = hash_combine(h, std::hash<std::string>{}(node.call->op));
    for (const ValueId input : node.inputs) h = hash_combine(h, input);
  }
  return h;
}

bool same(const Graph& a, const Graph& b) {
  return same_mesh(a.mesh, b.mesh) && a.schedule == b.schedule && a.kinds == b.kinds && a.num_params == b.num_params &&
         same_inputs(a, b) && std::ranges::equal(a.nodes, b.nodes, same_nodes) &&
         std::ranges::equal(a.outputs, b.outputs, same_outputs) &&
         std::ranges::equal(a.constraints, b.constraints, same_constraints);
}

}  // namespace spmdx
