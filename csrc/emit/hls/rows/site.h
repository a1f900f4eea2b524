// SPDX-License-Identifier: Apache-2.0
// Site: one op where it is written for HLS, and the table of how each op is.
#pragma once
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "emit/hls/build.h"
#include "graph/args.h"

namespace spmdx::emit::hls {

// What a row is given. Arguments are counted as in the schema of the op.
struct Site {
  Design& design;
  const Node& node;
  const std::vector<Operand>& values;  // by number of value

  const Call& call() const { return *node.call; }
  const std::string& op() const { return node.call->op; }
  const TensorType& result(size_t i = 0) const { return node.call->outputs.at(i); }
  const Shape& shape() const { return result().shape; }
  Elem elem(size_t i = 0) const { return elem_of(result(i).dtype); }
  bool is_fixed() const { return design.options.number.is_fixed; }
  bool has_tensor(size_t arg) const { return operand(*node.call, arg) >= 0; }
  Operand tensor(size_t arg) const;  // Throws ShardingError if it is absent.
  // A tensor, or a number of this kind, in this shape.
  Operand in(size_t arg, Elem elem, const Shape& shape) const;
  std::vector<Operand> tensors(size_t arg) const;  // of a list; absent ones are of kind none
  int64_t dim(size_t arg, size_t rank, int64_t missing = 0) const {
    return normal_dim(integer(*node.call, arg, missing), rank);
  }
  std::vector<int64_t> list(size_t arg, size_t length, int64_t missing) const;  // one number stands for all
};

// This op, or this use of it, is not written. `why` has its reason.
[[noreturn]] void refuse(const Site& site, const std::string& why);
// A stage of the op, which a row fills before it is added, and the number that it will have.
Stage stage_of(const Site& site);
// Its only result, as the stream of a stage that is added next.
uint32_t result_stream(Site& site, Elem elem, size_t result = 0);

using Row = std::function<std::vector<Operand>(Site&)>;
using Table = std::unordered_map<std::string, Row>;

void add_elementwise(Table& table);
void add_functions(Table& table);
void add_activations(Table& table);
void add_shapes(Table& table);
void add_joins(Table& table);
void add_reductions(Table& table);
void add_products(Table& table);
void add_convolutions(Table& table);
void add_pools(Table& table);

}  // namespace spmdx::emit::hls
