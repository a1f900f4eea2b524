// SPDX-License-Identifier: Apache-2.0
// The one IR, from the trace to the plan: a list of nodes in program order over numbered values.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "base/types.h"
#include "sharding/sharding.h"
#include "sharding/topology.h"

namespace spmdx {

using ValueId = uint32_t;
using NodeId = uint32_t;
using SourceId = uint32_t;  // 0: unknown. Resolved by whoever recorded it.
constexpr uint32_t kNone = UINT32_MAX;

// ---- arguments of a call -------------------------------------------------------------------------
// A tensor argument refers to the node's inputs by index, so a call can be shared between nodes.
struct TensorArg {
  uint32_t input = 0;
  bool operator==(const TensorArg&) const = default;
};
struct TensorListArg {
  std::vector<uint32_t> inputs;  // kNone: an absent optional tensor
  bool operator==(const TensorListArg&) const = default;
};
// A number that changes from run to run (learning rate, random draw): param `index` of the node.
struct RealParam {
  uint32_t index = 0;
  bool operator==(const RealParam&) const = default;
};
struct IntParam {
  uint32_t index = 0;
  bool operator==(const IntParam&) const = default;
};
// Anything only the backend understands (memory format, layout …), as text with its kind: "memory_format:2".
struct OpaqueArg {
  std::string text;
  bool operator==(const OpaqueArg&) const = default;
};
using Arg = std::variant<std::monostate, TensorArg, TensorListArg, bool, int64_t, double, std::vector<int64_t>,
                         std::vector<double>, std::vector<bool>, std::string, DType, RealParam, IntParam, OpaqueArg>;

// One op with its arguments and result types: all that shapes, rules and hashes depend on. Shared and
// immutable; the tracer interns them, so equal calls are usually the same pointer.
struct Call {
  std::string op;                  // "aten.add.Tensor"; the overload "default" is left out: "aten.mm"
  std::vector<Arg> args;           // one per schema argument
  std::vector<TensorType> inputs;  // types of the tensor operands, in argument order
  std::vector<TensorType> outputs;
  uint32_t num_params = 0;  // RealParam and IntParam together, numbered in argument order
  uint64_t hash = 0;        // set by seal()

  bool operator==(const Call& other) const;  // compares everything but the hash
};
using CallRef = std::shared_ptr<const Call>;
CallRef seal(Call call);  // computes the hash

// ---- nodes and values ----------------------------------------------------------------------------
struct Node {
  CallRef call;
  std::vector<ValueId> inputs;
  ValueId output = 0;  // first result; result i is output + i
  uint32_t param = 0;  // first parameter, a number below Graph::num_params
  SourceId source = 0;
  // For collectives (op "spmdx.comm.all_gather" …): what moves. Shardings are those of input and output.
  SubAxisSet sub_axes = 0;
  int64_t bytes = 0;
  std::string cause;  // why this collective is here
};

// Why a dim of a value is cut: which annotation, through which op it came last.
struct Provenance {
  SourceId source = 0;  // of the annotation
  std::string origin;   // "annotation of input 3"
  CallRef through;      // null: none
  SourceId at = 0;      // of that op
};

struct Value {
  TensorType type;
  NodeId producer = kNone;         // kNone: a graph input
  ShardingRef sharding = nullptr;  // null: not decided yet
  Provenance why;
};

// A value that exists before the step. `physical` is the layout its data has now (null: a host constant
// or fresh upload, held whole); `annotation` what the user wrote (null: nothing, propagation may decide).
struct Input {
  ValueId value = 0;
  ShardingRef physical = nullptr;
  ShardingRef annotation = nullptr;
  SourceId source = 0;  // where the user annotated it
  std::string name;
  // A parameter or other state: its layout says how it is stored, so it yields to the layout of the data.
  bool state = false;
};

// A value that outlives the step. `tied` is the input whose sharding it should have (the value that the
// same tensor held before, or the parameter whose gradient it is), kNone if there is none.
struct Output {
  ValueId value = 0;
  ShardingRef annotation = nullptr;
  uint32_t tied = kNone;  // index into Graph::inputs
  bool donates = false;   // the tied input dies with this step: its buffer may be reused
  SourceId source = 0;
  bool state = false;  // as of Input
};

// A sharding the user put on a traced value.
struct Constraint {
  ValueId value = 0;
  ShardingRef sharding = nullptr;
  SourceId source = 0;
  bool state = false;  // as of Input
};

struct Graph {
  MeshRef mesh;             // null: no annotation anywhere; runs on one device
  std::vector<Node> nodes;  // topological: a node's inputs come before it
  std::vector<Value> values;
  std::vector<Input> inputs;
  std::vector<Output> outputs;
  std::vector<Constraint> constraints;

  const Value& value(ValueId id) const { return values[id]; }
  ValueId add_input(TensorType type, std::string name = {});  // index into inputs is inputs.size()-1
  // Appends a node; its result values get the call's output types. Returns the first result.
  ValueId add_node(CallRef call, std::vector<ValueId> inputs, SourceId source = 0, uint32_t param = 0);
  uint32_t num_params = 0;
};

// Equal programs have equal hashes: ops, arguments, wiring, types, shardings of inputs, annotations, ties and outputs;
// sources and param values are not part of it. `same` compares the same things exactly.
uint64_t structural_hash(const Graph& graph);
bool same(const Graph& a, const Graph& b);

// Consumers of every value, in program order (a node once, even if it uses the value twice).
std::vector<std::vector<NodeId>> users(const Graph& graph);
// Its data lies on another mesh than the graph's, as an earlier step left it.
bool comes_from_another_mesh(const Graph& graph, const Input& input);

// Base name of an op: "aten.add" for "aten.add.Tensor".
std::string_view base_name(std::string_view op);
inline bool is_collective(const Node& node) { return node.call->op.starts_with("spmdx.comm."); }
// "spmdx.comm.all_gather"
std::string collective_op(Collective kind);
// The two that have names of their own, graph/rows.h: rows between devices. They are collective_permutes; the sub-axes
// that cut the dim stay.
constexpr std::string_view kPermuteRows = "spmdx.comm.permute_rows", kCommHalo = "spmdx.comm.halo";
Collective collective_kind(const Node& node);

}  // namespace spmdx
