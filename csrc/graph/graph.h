// SPDX-License-Identifier: Apache-2.0
// Graph: the one IR, from recording to the plan. It is a list of nodes in program order over numbered values.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "base/types.h"
#include "sharding/sharding.h"
#include "sharding/topology.h"

namespace spmdx {

using ValueId = uint32_t;
using NodeId = uint32_t;
using SourceId = uint32_t;  // a line of the user's program, 0 if unknown; the recorder knows its text
constexpr uint32_t kNone = UINT32_MAX;

// ---- arguments of a call -------------------------------------------------------------------------
// A tensor argument is an index into the node's operands, so a call can be shared between nodes.
struct TensorArg {
  uint32_t input = 0;
  bool operator==(const TensorArg&) const = default;
};
struct TensorListArg {
  std::vector<uint32_t> inputs;  // kNone: an absent optional tensor
  bool operator==(const TensorListArg&) const = default;
};
// A number that may change from run to run (a learning rate, a seed): parameter `index` of the node, see Node::param.
struct RealParam {
  uint32_t index = 0;
  bool operator==(const RealParam&) const = default;
};
struct IntParam {
  uint32_t index = 0;
  int64_t plus = 0;  // the argument is the parameter and this
  bool operator==(const IntParam&) const = default;
};
// An argument that only the backend understands (a memory format, a layout), as text: "memory_format:2".
struct OpaqueArg {
  std::string text;
  bool operator==(const OpaqueArg&) const = default;
};
using Arg = std::variant<std::monostate, TensorArg, TensorListArg, bool, int64_t, double, std::vector<int64_t>,
                         std::vector<double>, std::vector<bool>, std::string, DType, RealParam, IntParam, OpaqueArg>;

struct StartRow;  // graph/starts.h

// One op with its arguments and the types of its operands and results: all that rules and hashes depend on. Immutable,
// and shared by nodes; the recorder interns calls, so equal ones are usually the same pointer.
struct Call {
  std::string op;                  // "aten.add.Tensor"; the overload "default" is left out: "aten.mm"
  std::vector<Arg> args;           // one per schema argument
  std::vector<TensorType> inputs;  // types of the tensor operands, in argument order
  std::vector<TensorType> outputs;
  uint32_t num_params = 0;  // how many RealParams and IntParams are among `args`; both are numbered together
  // Set by seal(): a hash of all of the above, one of all but the start, and which argument is the start (null: none).
  uint64_t hash = 0, kind = 0;
  const StartRow* start = nullptr;

  bool operator==(const Call& other) const;  // compares everything but what seal() sets
};
using CallRef = std::shared_ptr<const Call>;
CallRef seal(Call call);  // the call with its hash, which can no longer change

// ---- nodes and values ----------------------------------------------------------------------------
// Where a node was recorded among the backward passes of a program.
struct Phase {
  uint32_t number = 0;  // odd before a backward pass, even within one, counted on from 1; 0: a pass has added the node
  bool late = false;    // while a plan is made: after a backward pass, and of its microbatch, not of the next one
  bool operator<(const Phase& other) const { return 2 * number - late < 2 * other.number - other.late; }
};
inline bool is_backward(uint32_t phase) { return phase != 0 && phase % 2 == 0; }

// Where in the program a node was recorded. Plans are not compared by it: order and stages alone depend on it.
struct Recorded {
  Phase phase;
  // Autograd's number of the op that the node is a part of, or whose backward pass it is a part of; 0: none is known.
  // Equal numbers say which these are, and nothing else: processes may have others.
  uint64_t op = 0;
  bool again = false;    // of the forward pass, computed anew within a backward pass, as checkpoints do
  bool by_plan = false;  // which no checkpoint does, but the plan, to hold less
  // While a plan is made: of nodes of a loop, which of its iteration's nodes this is, or is made of; of what reads
  // iterations after it, more than these, see passes/loops.
  uint32_t in_loop = kNone;
};

struct Node {
  CallRef call;
  std::vector<ValueId> inputs;
  ValueId output = 0;  // first result; result i is output + i
  uint32_t param = 0;  // the number of its first parameter in the graph; parameter i of the node is param + i
  SourceId source = 0;
  Recorded recorded;
  NodeId starts_of = kNone;  // while a plan is made: the recorded node from which this one has its start
  // Of collectives only (ops like "spmdx.comm.all_gather"): the sub-axes of its groups of devices, and the bytes that
  // one device receives. The shardings before and after are those of its operand and result.
  SubAxisSet sub_axes = 0;
  int64_t bytes = 0;
  bool native = false;  // between processes it is the backend's own collective, where their parts are equal
  std::string cause;    // why the plan has this collective
};

// Why a dim of a value is cut: the annotation, and the last op through which its cut was propagated.
struct Provenance {
  SourceId source = 0;  // of the annotation
  std::string origin;   // "annotation of input 3"
  CallRef through;      // the op, or null
  SourceId at = 0;      // of that op
};

struct Value {
  TensorType type;
  NodeId producer = kNone;         // kNone: a graph input
  ShardingRef sharding = nullptr;  // null: not decided yet
  Provenance why;
  ShardingRef hint = nullptr;  // a rewrite knows it from before, so propagation starts with it; not printed
};

// A value that exists before the step. `physical` is the sharding of its data now; null for data that no mesh has cut,
// a constant or a new upload. `annotation` is what the user wrote, or null.
struct Input {
  ValueId value = 0;
  ShardingRef physical = nullptr;
  ShardingRef annotation = nullptr;
  SourceId source = 0;  // where the user annotated it
  std::string name;
  // True for parameters and other state: the sharding says how it is stored. Where the sharding of data asks an op for
  // other cuts, propagation follows the data.
  bool state = false;
};

// A value that outlives the step. `tied` is the input whose sharding it should have: the value that the same tensor
// held before the step, or the parameter whose gradient this is.
struct Output {
  ValueId value = 0;
  ShardingRef annotation = nullptr;
  uint32_t tied = kNone;  // index into Graph::inputs; kNone: no input
  bool donates = false;   // nobody holds the tied input after the step, so its buffer may be reused
  SourceId source = 0;
  bool state = false;  // as Input::state
};

// A sharding that the user has put on a value inside of the program.
struct Constraint {
  ValueId value = 0;
  ShardingRef sharding = nullptr;
  SourceId source = 0;
  bool state = false;  // as Input::state
};

// While a plan is made: what the nodes of a phase and of the next one do is done so many times, by nodes that are not
// there.
struct LeftOut {
  uint32_t phase = 0;  // 0: none is
  int64_t times = 1;
  int64_t of(const Node& node) const {
    const uint32_t of = node.recorded.phase.number - node.recorded.phase.late;
    return phase && (of == phase || of == phase + 1) ? times : 1;
  }
};

struct Graph {
  MeshRef mesh;  // null: nothing is annotated, and the graph runs on one device
  // In which order the stages do what they do, where values have places: the name or the text of a schedule
  // (passes/pipeline/schedule.h). Empty: none was asked for.
  std::string schedule;
  // The axis of the mesh along which devices are of several kinds, and nodes run where they end first. Empty: none.
  std::string kinds;
  LeftOut left_out;
  std::vector<Node> nodes;  // topological: a node's inputs come before it
  std::vector<Value> values;
  std::vector<Input> inputs;
  std::vector<Output> outputs;
  std::vector<Constraint> constraints;

  const Value& value(ValueId id) const { return values[id]; }
  ValueId add_input(TensorType type, std::string name = {});  // appends to `inputs`; returns the value
  // Appends a node; its result values get the call's output types. Returns the first result.
  ValueId add_node(CallRef call, std::vector<ValueId> inputs, SourceId source = 0, uint32_t param = 0);
  uint32_t num_params = 0;
  // While a plan is made: pairs of recorded nodes that were merged because their starts are equal. kNone: with a node
  // that has its start from none.
  std::vector<std::pair<NodeId, NodeId>> merged_starts;
};

// A hash of all that a plan depends on: ops, arguments, operands, types, shardings of inputs, annotations, constraints,
// ties and outputs, but not sources, the values of parameters or starts (graph/starts.h), which a plan may leave open.
// Equal in every process. `same` compares these exactly.
uint64_t structural_hash(const Graph& graph);
bool same(const Graph& a, const Graph& b);
// A hash of ops and of which values they read, whatever their shapes and numbers. Equal in every process.
uint64_t wiring_hash(const Graph& graph);

// For every value the nodes that read it, in program order, each node once.
std::vector<std::vector<NodeId>> users(const Graph& graph);
// The user's line that made a value; of one that PyTorch adds up by itself, as a gradient, that of what it adds up.
SourceId source_of(const Graph& graph, ValueId value);
// Whether an earlier step has left the input's data on another mesh than that of the graph.
bool comes_from_another_mesh(const Graph& graph, const Input& input);

// The name of an op without its overload: "aten.add" for "aten.add.Tensor".
std::string_view base_name(std::string_view op);
inline bool is_collective(const Node& node) { return node.call->op.starts_with("spmdx.comm."); }
// The op of a kind of collective: "spmdx.comm.all_gather".
std::string collective_op(Collective kind);
// Two collective_permutes that have ops of their own: they send rows between devices by a RowMap (graph/rows.h), and
// leave the sharding as it is.
constexpr std::string_view kPermuteRows = "spmdx.comm.permute_rows", kCommHalo = "spmdx.comm.halo";
// The kind of a collective node. Throws InternalError for any other node.
Collective collective_kind(const Node& node);

}  // namespace spmdx
