// SPDX-License-Identifier: Apache-2.0
// ArgReader: reads the arguments of one op from graph text; operands and parameters are numbered in order of
// appearance.
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

  // Reads from "(" to ")", and sets call.args and call.inputs. Throws ShardingError.
  void read(Call& call);
  // Changes the numbers of parameters from those in the graph to those in the node, whose parameters are [base, base +
  // count) in the graph, and sets call.num_params.
  static void number_params(Call& call, uint32_t base, uint32_t count);

  std::vector<ValueId> operands;
  std::vector<uint32_t> params;  // their numbers in the graph

 private:
  uint32_t operand();
  uint32_t param();
  IntParam integer_param();
  Arg argument();
  Arg dtype();
  Arg list();  // the first item tells the kind of all items
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
