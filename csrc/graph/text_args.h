// SPDX-License-Identifier: Apache-2.0
// Reads the arguments of one op from graph text: operands and parameters are numbered as they come.
#pragma once
#include <string>
#include <vector>

#include "base/cursor.h"
#include "graph/graph.h"

namespace spmdx {

class ArgReader {
 public:
  ArgReader(Cursor& cursor, const Graph& graph, const std::vector<bool>& defined)
      : cursor_(cursor), graph_(graph), defined_(defined) {}

  // From "(" to ")": call.args and call.inputs.
  void read(Call& call);
  // Turns numbers of parameters in the graph into numbers in the node, which has [base, base + count), and sets
  // call.num_params.
  static void number_params(Call& call, uint32_t base, uint32_t count);

  std::vector<ValueId> operands;
  std::vector<uint32_t> params;  // their numbers in the graph

 private:
  uint32_t operand();
  uint32_t param();
  Arg argument();
  Arg dtype();
  Arg list();  // the first item says what it holds
  template <class T>
  T empty_list();
  template <class T>
  std::vector<T> more(T first, const char* expected);
  template <class T, class Read>
  std::vector<T> items(Read read_item);

  Cursor& cursor_;
  const Graph& graph_;
  const std::vector<bool>& defined_;
};

}  // namespace spmdx
