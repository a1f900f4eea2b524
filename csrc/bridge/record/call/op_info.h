// SPDX-License-Identifier: Apache-2.0
// What recording needs to know of an op.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>

#include <string>
#include <vector>

namespace spmdx::bridge {

using torch::jit::Stack;

// What an argument of an op is to who records it.
enum class Slot : uint8_t {
  tensor,
  tensor_list,
  optional_tensor_list,
  real,
  number,
  dtype,
  memory_format,
  generator,
  host_only,
  constant
};

struct OpInfo;
struct AtenFacts;  // aten_facts.h
// Takes over an op entirely: reads its arguments off the stack and leaves its results. False: not this time.
using Handler = bool (*)(const OpInfo& info, Stack* stack);

struct OpInfo {
  explicit OpInfo(c10::OperatorHandle op) : op(op) {}
  c10::OperatorHandle op;
  std::string name;               // "aten.add.Tensor"
  std::string base;               // "aten.add"
  std::vector<Slot> slots;        // one per argument
  std::vector<int> written;       // arguments the op writes to
  std::vector<int> returned;      // per result: the written argument it is, or -1
  std::vector<bool> list_result;  // per result: a list of tensors
  int device = -1;                // the argument that is a device, or -1
  int viewed = -1;                // the argument that results are views of, or -1
  bool is_out = false;
  bool returns_values = false;         // some result is a number, a bool … of the host
  bool view_like = false;              // see is_view_like
  bool draws = false;                  // random numbers: its Call has two more parameters, seed and draw number
  bool constant_reals = false;         // floats are part of the op's meaning
  const AtenFacts* facts = nullptr;    // never null once described
  const OpInfo* functional = nullptr;  // the variant without writes; null where there is none
  std::vector<int> functional_args;    // which of our arguments each of its arguments is
  Handler handler = nullptr;
};

}  // namespace spmdx::bridge
