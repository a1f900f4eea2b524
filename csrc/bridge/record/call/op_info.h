// SPDX-License-Identifier: Apache-2.0
// What recording needs to know of an op.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>

#include <string>
#include <vector>

namespace spmdx::bridge {

using torch::jit::Stack;

// How an argument of an op is recorded.
enum class ArgumentKind : uint8_t {
  tensor,
  tensor_list,
  optional_tensor_list,
  real,    // a float
  number,  // a Scalar: an int, a float, a complex number or a bool
  dtype,
  memory_format,
  generator,
  host_only,  // about device and memory: no part of a graph
  constant    // any other
};

struct OpInfo;
struct AtenFacts;  // aten_facts.h
// Records an op in its own way: replaces the arguments on the stack by results. False: the stack is as it was, and the
// op is recorded as any other.
using Handler = bool (*)(const OpInfo& info, Stack* stack);

struct OpInfo {
  explicit OpInfo(c10::OperatorHandle op) : op(op) {}
  c10::OperatorHandle op;
  std::string name;                 // "aten.add.Tensor"
  std::string base;                 // "aten.add"
  std::vector<ArgumentKind> kinds;  // one per argument
  std::vector<int> written;         // arguments the op writes to
  std::vector<int> returned;        // per result: the written argument it is, or -1
  std::vector<bool> list_result;    // per result: a list of tensors
  int device = -1;                  // the argument that is a device, or -1
  int viewed = -1;                  // the argument that results are views of, or -1
  bool is_out = false;
  bool returns_values = false;         // some result is a number or a bool
  bool view_like = false;              // see is_view_like
  bool draws = false;                  // it draws random numbers: its Call has two more parameters, seed and draw
  bool constant_reals = false;         // floats are constants, not parameters
  const AtenFacts* facts = nullptr;    // never null in what op_info returns
  const OpInfo* functional = nullptr;  // the variant without writes; null where there is none
  std::vector<int> functional_args;    // for each argument of `functional`: which of ours it is
  Handler handler = nullptr;
};

}  // namespace spmdx::bridge
