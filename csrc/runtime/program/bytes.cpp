// SPDX-License-Identifier: Apache-2.0
// Bytes: the elements of every vector, and what an allocator adds.
#include "runtime/program/bytes.h"

#include <unordered_set>

namespace spmdx {
namespace {

constexpr int64_t kBlock = 16;     // what an allocator adds to a block
constexpr int64_t kKernel = 1024;  // of a prepared call: its arguments as the backend wants them

template <class T>
int64_t vector_bytes(const std::vector<T>& elements) {
  return elements.capacity() ? static_cast<int64_t>(elements.capacity() * sizeof(T)) + kBlock : 0;
}

int64_t string_bytes(const std::string& text) {
  static const size_t inside = std::string().capacity();
  return text.capacity() > inside ? static_cast<int64_t>(text.capacity()) + kBlock : 0;
}

int64_t types_bytes(const std::vector<TensorType>& types) {
  int64_t bytes = vector_bytes(types);
  for (const TensorType& type : types) bytes += vector_bytes(type.shape);
  return bytes;
}

int64_t call_bytes(const Call& call) {
  int64_t bytes = sizeof(Call) + kBlock + string_bytes(call.op) + vector_bytes(call.args);
  for (const Arg& arg : call.args) {
    if (const auto* list = std::get_if<std::vector<int64_t>>(&arg)) bytes += vector_bytes(*list);
    if (const auto* list = std::get_if<TensorListArg>(&arg)) bytes += vector_bytes(list->inputs);
  }
  return bytes + types_bytes(call.inputs) + types_bytes(call.outputs);
}

int64_t contribution_bytes(const Contribution& part) {
  int64_t bytes = vector_bytes(part.summands) + vector_bytes(part.shape) + vector_bytes(part.starts);
  for (const Summand& summand : part.summands) {
    bytes += vector_bytes(summand);
    for (const BoxCopy& copy : summand) bytes += vector_bytes(copy.box) + vector_bytes(copy.starts);
  }
  return bytes;
}

int64_t route_bytes(const Route& route) {
  int64_t bytes = vector_bytes(route.targets) + vector_bytes(route.deliveries) + vector_bytes(route.sources);
  for (const Target& target : route.targets) {
    bytes += vector_bytes(target.shape) + vector_bytes(target.terms) + vector_bytes(target.partners);
    for (const Term& term : target.terms) {
      bytes += vector_bytes(term);
      for (const Contribution& part : term) bytes += contribution_bytes(part);
    }
  }
  for (const Delivery& delivery : route.deliveries) bytes += contribution_bytes(delivery.contribution);
  for (const Native& native : route.natives) {
    bytes += vector_bytes(native.group) + vector_bytes(native.targets) + vector_bytes(native.gives);
    for (const Contribution& part : native.gives) bytes += contribution_bytes(part);
  }
  return bytes + vector_bytes(route.natives);
}

}  // namespace

int64_t bytes_of(const Graph& graph) {
  int64_t bytes = vector_bytes(graph.nodes) + vector_bytes(graph.values) + vector_bytes(graph.inputs) +
                  vector_bytes(graph.outputs) + vector_bytes(graph.constraints);
  std::unordered_set<const Call*> calls;
  for (const Node& node : graph.nodes) {
    bytes += vector_bytes(node.inputs) + string_bytes(node.cause);
    if (calls.insert(node.call.get()).second) bytes += call_bytes(*node.call);
  }
  for (const Value& value : graph.values) bytes += vector_bytes(value.type.shape) + string_bytes(value.why.origin);
  for (const Input& input : graph.inputs) bytes += string_bytes(input.name);
  return bytes;
}

int64_t bytes_of(const Program& program) {
  int64_t bytes = vector_bytes(program.instructions) + vector_bytes(program.operands) + vector_bytes(program.results) +
                  vector_bytes(program.fills) + vector_bytes(program.collectives) + vector_bytes(program.routes) +
                  vector_bytes(program.kernels) + vector_bytes(program.calls) + vector_bytes(program.first_slot) +
                  vector_bytes(program.num_slots);
  for (const Fill& fill : program.fills) bytes += vector_bytes(fill.shape);
  for (const Route& route : program.routes) bytes += route_bytes(route);
  return bytes + static_cast<int64_t>(program.kernels.size()) * kKernel;
}

}  // namespace spmdx
