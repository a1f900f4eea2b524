// SPDX-License-Identifier: Apache-2.0
// Graph text: prints graphs. text_parse.cpp reads every line written here back into the same graph.
#include "graph/text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "sharding/notation.h"

namespace spmdx {
namespace {

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '\n') {
      out += "\\n";
    } else {
      if (c == '"' || c == '\\') out += '\\';
      out += c;
    }
  }
  return out + '"';
}

// The shortest text that is read back as the same double, and is never read as an integer.
std::string number(double value) {
  if (!std::isfinite(value)) return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
  char buffer[40];
  std::string out(buffer, std::to_chars(buffer, buffer + sizeof(buffer), value).ptr);
  return out.find_first_of(".e") == out.npos ? out + ".0" : out;
}

std::string percent(ValueId value) { return value == kNone ? "none" : "%" + std::to_string(value); }

// `str` prints the same text for a replicated sharding and for none (null). Graph text must tell them apart, so it adds
// the word "replicated".
std::string typed(const TensorType& type, ShardingRef sharding) {
  std::string out = str(TensorType{type.dtype, type.shape}, sharding);
  if (sharding && sharding->replicated() && sharding->place.plain()) out += " replicated";
  return type.wrapped_number ? out + " number" : out;
}

std::string typed(const Graph& graph, ValueId value) {
  return typed(graph.values[value].type, graph.values[value].sharding);
}

// "[a, b]". An empty list has its kind in front, "doubles[]", because no item tells the kind.
template <class Items, class Print>
std::string list(const Items& items, const char* kind, Print print_item) {
  std::string out = "[";
  for (size_t i = 0; i < items.size(); ++i) out += (i ? ", " : "") + print_item(items[i]);
  return (items.empty() ? kind : "") + out + "]";
}

struct PrintArg {
  const Node& node;

  std::string operand(uint32_t input) const { return percent(input == kNone ? kNone : node.inputs[input]); }
  std::string param(const char* kind, uint32_t index) const {
    return kind + std::to_string(uint64_t{node.param} + index);
  }

  std::string operator()(std::monostate) const { return "none"; }
  std::string operator()(const TensorArg& arg) const { return operand(arg.input); }
  std::string operator()(const TensorListArg& arg) const {
    return list(arg.inputs, "tensors", [&](uint32_t input) { return operand(input); });
  }
  std::string operator()(bool arg) const { return arg ? "true" : "false"; }
  std::string operator()(int64_t arg) const { return std::to_string(arg); }
  std::string operator()(double arg) const { return number(arg); }
  std::string operator()(const std::vector<int64_t>& arg) const {
    return list(arg, "", [](int64_t i) { return std::to_string(i); });
  }
  std::string operator()(const std::vector<double>& arg) const { return list(arg, "doubles", number); }
  std::string operator()(const std::vector<bool>& arg) const {
    return list(arg, "bools", [](bool b) { return std::string(b ? "true" : "false"); });
  }
  std::string operator()(const std::string& arg) const { return quoted(arg); }
  std::string operator()(DType arg) const { return "dtype:" + std::string(name(arg)); }
  std::string operator()(const RealParam& arg) const { return param("real#", arg.index); }
  std::string operator()(const IntParam& arg) const {
    const std::string plus = arg.plus == 0 ? "" : (arg.plus > 0 ? "+" : "") + std::to_string(arg.plus);
    return param("int#", arg.index) + plus;
  }
  std::string operator()(const OpaqueArg& arg) const { return "opaque" + quoted(arg.text); }
};

// Whether the parameters are numbered 0, 1, … in the order of the arguments, as the parser numbers them by itself.
bool numbers_params_in_order(const Call& call) {
  uint32_t next = 0;
  for (const Arg& arg : call.args) {
    const auto* real = std::get_if<RealParam>(&arg);
    const auto* integer = std::get_if<IntParam>(&arg);
    if ((real && real->index != next) || (integer && integer->index != next)) return false;
    next += real || integer;
  }
  return next == call.num_params;
}

std::string axes(const Mesh& mesh, SubAxisSet sub_axes) {
  std::string out;
  for (const std::string& axis : axis_names(mesh, sub_axis_list(sub_axes))) out += (out.empty() ? "" : ",") + axis;
  return out;
}

// The text after the closing parenthesis: the fields of a collective, and parameters that are not numbered in order.
std::string attributes(const Node& node, const Graph& graph) {
  std::string out;
  if (node.sub_axes && graph.mesh) out += " over " + axes(*graph.mesh, node.sub_axes);
  if (node.bytes) out += " bytes " + std::to_string(node.bytes);
  if (node.native) out += " native";
  if (!node.cause.empty()) out += " cause " + quoted(node.cause);
  if (!graph.schedule.empty() && node.recorded.phase.number)
    out += " phase " + std::to_string(node.recorded.phase.number);
  if (!graph.schedule.empty() && node.recorded.again && !node.recorded.by_plan) out += " again";
  if (node.recorded.by_plan) out += " anew";
  if (!graph.schedule.empty() && node.recorded.phase.late) out += " late";
  if (!numbers_params_in_order(*node.call)) {
    out += " params " + std::to_string(node.param) + " " + std::to_string(node.call->num_params);
  }
  return out;
}

std::string comment(SourceId id, const SourcePrinter& source) {
  if (id == 0 || !source) return "";
  std::string text = source(id);
  std::ranges::replace(text, '\n', ' ');
  return text.empty() ? "" : "  // " + text;
}

std::string print_mesh(const Mesh& mesh) {
  std::string out = "mesh(";
  for (const Axis& axis : mesh.axes()) {
    out += (out.back() == '(' ? "" : ", ") + axis.name + "=";
    if (axis.outer != 1) out += std::to_string(axis.outer) + "*";
    out += std::to_string(axis.size / axis.outer);
  }
  out += ")";
  bool plain = true;
  for (int64_t i = 0; i < mesh.size(); ++i) plain = plain && mesh.device_ids()[i] == i;
  const auto id_text = [](int64_t id) { return std::to_string(id); };
  return plain ? out : out + " ids " + list(mesh.device_ids(), "", id_text);
}

std::string print_input(const Input& input, const Graph& graph) {
  const Value& value = graph.values[input.value];
  std::string out = percent(input.value);
  if (value.sharding) out += " : " + typed(graph, input.value);
  out += " = input ";
  if (!input.name.empty()) out += quoted(input.name) + " ";
  out += typed(value.type, input.physical);
  if (input.annotation) out += " !" + typed(value.type, input.annotation);
  return input.state ? out + " state" : out;
}

std::string print_output(const Output& output, const Graph& graph) {
  std::string out = "return " + percent(output.value);
  if (output.annotation) out += " !" + typed(graph.values[output.value].type, output.annotation);
  if (output.tied != kNone) out += " tied " + percent(graph.inputs[output.tied].value);
  if (output.donates) out += " donates";
  return output.state ? out + " state" : out;
}

// The number of parameters that nodes use. The parser sets Graph::num_params to it, if the text says nothing else.
uint32_t used_params(const Graph& graph) {
  uint32_t used = 0;
  for (const Node& node : graph.nodes) {
    if (node.call->num_params) used = std::max(used, node.param + node.call->num_params);
  }
  return used;
}

}  // namespace

std::string print(const Node& node, const Graph& graph, const SourcePrinter& source) {
  std::string out;
  for (uint32_t i = 0; i < node.call->outputs.size(); ++i) {
    out += (i ? ", " : "") + percent(node.output + i) + " : " + typed(graph, node.output + i);
  }
  out += (out.empty() ? "" : " = ") + node.call->op + "(";
  for (size_t i = 0; i < node.call->args.size(); ++i) {
    out += (i ? ", " : "") + std::visit(PrintArg{node}, node.call->args[i]);
  }
  return out + ")" + attributes(node, graph) + comment(node.source, source);
}

std::string print(const Graph& graph, const SourcePrinter& source) {
  std::string out;
  if (graph.mesh) out += print_mesh(*graph.mesh) + "\n";
  if (!graph.schedule.empty()) out += "schedule " + quoted(graph.schedule) + "\n";
  if (!graph.kinds.empty()) out += "kinds " + quoted(graph.kinds) + "\n";
  if (const LeftOut& left = graph.left_out; left.phase)
    out += "repeat phase " + std::to_string(left.phase) + " " + std::to_string(left.times) + " times\n";
  if (graph.num_params != used_params(graph)) out += "params " + std::to_string(graph.num_params) + "\n";
  for (const Input& input : graph.inputs) out += print_input(input, graph) + comment(input.source, source) + "\n";
  for (const Node& node : graph.nodes) out += print(node, graph, source) + "\n";
  for (const Constraint& constraint : graph.constraints) {
    const TensorType& type = graph.values[constraint.value].type;
    out += "constrain " + percent(constraint.value) + " " + typed(type, constraint.sharding);
    if (constraint.state) out += " state";
    out += comment(constraint.source, source) + "\n";
  }
  for (const Output& output : graph.outputs) out += print_output(output, graph) + comment(output.source, source) + "\n";
  return out;
}

}  // namespace spmdx
