// SPDX-License-Identifier: Apache-2.0
// Rules of reductions: which dims go away, and what is left when they are cut.
#include "rules/families.h"
#include "rules/fits.h"
#include "rules/row.h"

namespace spmdx {
namespace {

// Dims that are reduced carry `mark` in the input and are missing (or 1) in every output.
OpRule reduce(const Call& call, size_t arg, Reduction reduction, char mark) {
  const size_t rank = call.inputs[0].shape.size();
  const std::vector<bool> acted = acted_dims(call, arg, rank);
  const bool keepdim = rank > 0 && call.outputs[0].shape.size() == rank;
  std::string in, out;
  for (size_t d = 0; d < rank; ++d) {
    const char letter = static_cast<char>('a' + static_cast<char>(d));
    in += letter;
    if (acted[d] && mark) in += mark;
    if (!acted[d])
      out += letter;
    else if (keepdim)
      out += '_';
    fits(!acted[d] || !keepdim || call.outputs[0].shape[d] == 1, "a reduced dim is left in " + call.op);
  }
  return from_letters(call, {{in}, std::vector<std::string>(call.outputs.size(), out)}, reduction);
}

}  // namespace

OpRule reduce_sum(const Call& call) { return reduce(call, 1, Reduction::sum, 0); }
OpRule reduce_max(const Call& call) { return reduce(call, 1, Reduction::max, 0); }
OpRule reduce_min(const Call& call) { return reduce(call, 1, Reduction::min, 0); }
OpRule reduce_prod(const Call& call) { return reduce(call, 1, Reduction::prod, 0); }
OpRule reduce_any(const Call& call) { return reduce(call, 1, Reduction::any, 0); }
OpRule reduce_all(const Call& call) { return reduce(call, 1, Reduction::all, 0); }
OpRule reduce_whole(const Call& call) { return reduce(call, row_of(call).arg, Reduction::none, '!'); }
OpRule reduce_index(const Call& call) { return reduce(call, 1, Reduction::none, '^'); }
OpRule reduce_mean(const Call& call) { return reduce(call, 1, Reduction::sum, '+'); }
OpRule reduce_rows(const Call& call) {
  return reduce(call, 1, Reduction::sum, is_complex(call.inputs.at(0).dtype) ? '!' : '^');
}

// (x, bins, min, max): equal ends stand for the least and the largest element.
OpRule histc(const Call& call) {
  const bool given = real(call, 2, 0) != real(call, 3, 0);
  return from_letters(call, {{dims(call.inputs[0].shape.size(), 'a', given ? 0 : '!')}, {"Z!"}});
}

// (rows, …): the counts of the rows of all devices add up, densities do not. Bins and edges are whole.
OpRule histogram(const Call& call, int weight, size_t density) {
  const std::string row = boolean(call, density, false) ? "*!" : "*";
  Letters letters{{row + "D!"}, {}};
  for (size_t i = 1; i < call.inputs.size(); ++i)
    letters.inputs.push_back(static_cast<int>(i) == weight ? row : dims(1, static_cast<char>('a' + i), '!'));
  for (const TensorType& type : call.outputs) letters.outputs.push_back(dims(type.shape.size(), 'M', '!'));
  return from_letters(call, letters);
}

// (x, bins, range, weight, density): a range that is not given is that of all rows.
OpRule histogram_counts(const Call& call) {
  const bool given = !std::holds_alternative<std::monostate>(argument(call, 2));
  return given ? histogram(call, operand(call, 3), 4) : replicated(call);
}

// (x, edges, weight, density)
OpRule histogram_edges(const Call& call) { return histogram(call, operand(call, 2), 3); }

// (x, ord, dim, keepdim, dtype): an order that is not a constant cannot be expanded.
OpRule vector_norm(const Call& call) {
  const Arg& order = argument(call, 1);
  const bool known = std::holds_alternative<double>(order) || std::holds_alternative<int64_t>(order) ||
                     std::holds_alternative<std::monostate>(order);
  return reduce(call, 2, Reduction::sum, known && !is_complex(call.inputs[0].dtype) ? '+' : '!');
}

}  // namespace spmdx
