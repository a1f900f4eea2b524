// SPDX-License-Identifier: Apache-2.0
// Constants are found from the inputs on, node by node; the nodes of one are found from its value back.
#include "bridge/step/constant_values.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "bridge/python/errors.h"
#include "bridge/step/run_now.h"
#include "rules/rule/row.h"

namespace spmdx::bridge {
namespace {

constexpr int64_t kNoConstant = -1;

// The part of a recorded graph that computes one value.
struct Slice {
  Graph graph;
  std::vector<DataRef> inputs;  // their elements are known, or they have some
  std::vector<Param> params;
};

// Whether equal operands give equal results, which are nothing but these. Users' own ops may do anything.
bool is_function(const Call& call) {
  const rules::Row* row = rules::find_row(call.op);
  return row ? !row->random && !row->registered : call.op.starts_with("aten.");
}

int64_t bytes_of(const TensorType& type) { return type.dtype == DType::unknown ? 0 : type.bytes(); }

std::exception_ptr led_by_op(std::exception_ptr error, const Node& node) {
  return lead_error(std::move(error), node.source, node.call->op);
}

DataRef computed(const Slice& slice) {
  std::vector<DataRef> inputs;
  for (const DataRef& data : slice.inputs) {
    const DataRef elements = elements_of(data);
    inputs.push_back(elements ? elements : data);
  }
  if (slice.graph.nodes.empty()) return inputs.at(0);
  Shards made = std::move(run_now(slice.graph, inputs, slice.params, led_by_op).at(0));
  return std::make_shared<Data>(slice.graph.value(slice.graph.outputs[0].value).type, nullptr, std::move(made));
}

// Whether the node's parameters are these.
bool has_params(const RecorderState& state, const Node& node, const std::vector<Param>& params) {
  for (size_t i = 0; i < params.size(); ++i)
    if (state.params[node.param + i].integer != params[i].integer) return false;
  return true;
}

}  // namespace

ConstantValues::ConstantValues(const RecorderState& state, const std::vector<Assumed>& assumed, int64_t most,
                               bool (*is_given)(const Data&))
    : state_(state), most_(most), is_given_(is_given), largest_(state.graph.values.size(), kNoConstant) {
  for (size_t i = 0; i < state.inputs.size(); ++i) add_input(i);
  for (const Assumed& one : assumed) {
    const auto input = one.of.data ? state.input_of.find(one.of.data.get()) : state.input_of.end();
    if (one.of.data ? input == state.input_of.end() : !state.pending(one.of)) continue;
    const ValueId of = one.of.data ? state.graph.inputs[input->second].value : one.of.id;
    if (one.steps) {
      of_views_.emplace_back(&one, of);
    } else {
      leaves_.insert_or_assign(of, one.elements);
      largest_[of] = 0;
    }
  }
  for (const Node& node : state.graph.nodes) add_node(node);
}

void ConstantValues::add_input(size_t index) {
  const DataRef& data = state_.inputs[index];
  const Known* known = find_known(*data);
  if (!known && (data->is_abstract() || !is_given_(*data))) return;
  const ValueId value = state_.graph.inputs[index].value;
  largest_[value] = known ? known->too_large : 0;
  leaves_.emplace(value, data);
}

void ConstantValues::add_node(const Node& node) {
  int64_t largest = is_function(*node.call) ? 0 : kNoConstant;
  for (const ValueId operand : node.inputs) {
    if (operand == kNone) continue;
    if (largest_[operand] == kNoConstant) largest = kNoConstant;
    if (largest != kNoConstant) largest = std::max(largest, largest_[operand]);
  }
  for (size_t i = 0; i < node.call->outputs.size(); ++i) {
    const ValueId value = node.output + static_cast<ValueId>(i);
    if (is_unknown(value, state_.epoch)) largest = kNoConstant;
    const int64_t bytes = bytes_of(node.call->outputs[i]);
    if (!leaves_.contains(value))
      largest_[value] = largest == kNoConstant || bytes <= most_ ? largest : std::max(largest, bytes);
    for (const auto& [assumed, of] : of_views_) {
      if (!shows(value, *assumed, of)) continue;
      leaves_.insert_or_assign(value, assumed->elements);
      largest_[value] = 0;
    }
  }
}

// Whether it is made of `of` by the steps of the view.
bool ConstantValues::shows(ValueId value, const Assumed& assumed, ValueId of) const {
  const Graph& graph = state_.graph;
  for (size_t i = assumed.steps->size(); i-- > 0;) {
    const ViewStep& step = (*assumed.steps)[i];
    if (graph.values[value].producer == kNone) return false;
    const Node& node = graph.nodes[graph.values[value].producer];
    if (node.output + step.result != value || node.inputs.size() != 1 || node.call->hash != step.call->hash)
      return false;
    if (!(*node.call == *step.call) || !has_params(state_, node, step.params)) return false;
    value = node.inputs[0];
  }
  return value == of;
}

// In the order of the graph.
std::vector<NodeId> ConstantValues::nodes_of(ValueId value) const {
  std::vector<NodeId> found;
  std::vector<ValueId> next{value};
  std::unordered_map<NodeId, bool> seen;
  while (!next.empty()) {
    const ValueId at = next.back();
    next.pop_back();
    if (at == kNone || leaves_.contains(at)) continue;
    const NodeId producer = state_.graph.values[at].producer;
    if (!seen.emplace(producer, true).second) continue;
    found.push_back(producer);
    const Node& node = state_.graph.nodes[producer];
    next.insert(next.end(), node.inputs.begin(), node.inputs.end());
  }
  std::sort(found.begin(), found.end());
  return found;
}

Known ConstantValues::known(ValueId value) const {
  internal_check(constant(value), "what is known of a value that is no constant");
  if (too_large(value)) return {.too_large = too_large(value)};
  auto slice = std::make_shared<Slice>();
  Known known{.depth = 1};
  std::unordered_map<ValueId, ValueId> now;
  const auto moved = [&](ValueId from) {
    if (from == kNone) return kNone;
    const auto [found, fresh] = now.emplace(from, kNone);
    if (!fresh) return found->second;
    const DataRef& data = leaves_.at(from);
    if (const Known* of = find_known(*data)) known.depth = std::max(known.depth, of->depth + 1);
    slice->inputs.push_back(data);
    return found->second = slice->graph.add_input(state_.graph.values[from].type);
  };
  for (const NodeId id : nodes_of(value)) {
    const Node& node = state_.graph.nodes[id];
    std::vector<ValueId> operands;
    for (const ValueId operand : node.inputs) operands.push_back(moved(operand));
    const auto first = state_.params.begin() + node.param;
    const auto param = static_cast<uint32_t>(slice->params.size());
    slice->params.insert(slice->params.end(), first, first + node.call->num_params);
    const ValueId made = slice->graph.add_node(node.call, std::move(operands), node.source, param);
    for (ValueId i = 0; i < node.call->outputs.size(); ++i)
      if (!leaves_.contains(node.output + i)) now.emplace(node.output + i, made + i);
  }
  slice->graph.num_params = static_cast<uint32_t>(slice->params.size());
  slice->graph.outputs.push_back({.value = moved(value)});
  known.compute = [slice = std::shared_ptr<const Slice>(std::move(slice))] { return computed(*slice); };
  return known;
}

}  // namespace spmdx::bridge
