// SPDX-License-Identifier: Apache-2.0
// Site: one op where it is written, and the table of how each op is.
#pragma once
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "emit/mlir/writer.h"
#include "graph/args.h"

namespace spmdx::emit {

// What a row is given. Arguments are counted as in the schema of the op.
struct Site {
  Writer& write;
  const Graph& graph;
  const Node& node;
  const std::vector<Tensor>& values;  // by number of value
  std::vector<Tensor>& facts;         // scalars that are true unless the program is wrong

  const Call& call() const { return *node.call; }
  const TensorType& result(size_t i = 0) const { return node.call->outputs.at(i); }
  bool has_tensor(size_t arg) const { return operand(*node.call, arg) >= 0; }
  // Throws ShardingError if it is absent.
  Tensor tensor(size_t arg) const;
  // A tensor, or a number, in this dtype and shape.
  Tensor in(size_t arg, const TensorType& type) const;
  // Those of a list; the names of absent ones are empty.
  std::vector<Tensor> tensors(size_t arg) const;
  int64_t dim(size_t arg, size_t rank, int64_t missing = 0) const {
    return normal_dim(integer(*node.call, arg, missing), rank);
  }
  // Which dims of a rank: all where the argument is absent or empty.
  std::vector<int64_t> dims(size_t arg, size_t rank) const;
  std::vector<int64_t> list(size_t arg, size_t length, int64_t missing) const;  // one number stands for all
  // The program is wrong, as PyTorch's kernels would say, where one of these is false.
  void require(const Tensor& holds);
};

// This op, or this use of it, is not written. `why` has its reason.
[[noreturn]] void refuse(const Site& site, const std::string& why);

using Row = std::function<std::vector<Tensor>(Site&)>;
using Table = std::unordered_map<std::string, Row>;

void add_elementwise(Table& table);
void add_special_functions(Table& table);
void add_shapes(Table& table);
void add_reductions(Table& table);
void add_products(Table& table);
void add_convolutions(Table& table);
void add_windows(Table& table);
void add_rows_by_index(Table& table);
void add_sorts(Table& table);

}  // namespace spmdx::emit
