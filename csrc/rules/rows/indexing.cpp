// SPDX-License-Identifier: Apache-2.0
// Indexing: an indexed dim may be cut into windows by an expansion. The dims of the indices pass in reads; in writes
// they are whole, because two indices may be equal, or end in a sum if the op adds.
#include "rules/rows/indexing.h"

#include <algorithm>

#include "graph/args.h"
#include "rules/build/fits.h"
#include "rules/build/letters.h"
#include "rules/build/summed.h"
#include "rules/tensors/pointwise.h"

namespace spmdx::rules {
namespace {

size_t index_dim(const Call& call, size_t rank) { return static_cast<size_t>(normal_dim(integer(call, 1, 0), rank)); }

char letter(size_t dim) { return static_cast<char>('a' + static_cast<char>(dim)); }

char upper(size_t dim) { return static_cast<char>('A' + static_cast<char>(dim)); }

// The letters of one operand of gather or scatter. A dim in which all operands agree in size has a letter that they
// share; any other dim has a letter of this operand alone, and may not be cut, except `dim` of the first operand: it is
// the one that is indexed, and may be cut into windows.
std::string aligned(const Call& call, size_t tensor, size_t dim, size_t rank) {
  std::string text;
  for (size_t d = 0; d < rank; ++d) {
    bool same = d != dim;
    for (const TensorType& type : call.inputs)
      same &= type.shape.size() == rank && type.shape[d] == call.inputs[0].shape[d];
    // Upper-case letters are enough for three operands of rank 8.
    if (same)
      text += letter(d);
    else
      text += {upper(tensor * 8 + d), tensor == 0 && d == dim ? '+' : '!'};
  }
  return text;
}

// Of index and index_put: for each dim of self the number of the operand that indexes it, or -1.
std::vector<int> index_operands(const Call& call, size_t rank) {
  std::vector<int> operands(rank, -1);
  if (const auto* list = std::get_if<TensorListArg>(&argument(call, 1)))
    for (size_t d = 0; d < list->inputs.size() && d < rank; ++d)
      if (list->inputs[d] != kNone) operands[d] = static_cast<int>(list->inputs[d]);
  return operands;
}

// Letters of self (indexed dims in upper case), of the broadcast indices (from 'n' on), and of self[indices].
struct Indexed {
  std::string self, index, result;
  size_t index_rank = 0;
};

Indexed letters_of_index(const Call& call, const std::vector<int>& operands, char index_mark) {
  Indexed letters;
  std::vector<size_t> at;
  for (size_t d = 0; d < operands.size(); ++d) {
    if (operands[d] < 0) continue;
    at.push_back(d);
    letters.index_rank = std::max(letters.index_rank, call.inputs[static_cast<size_t>(operands[d])].shape.size());
    fits(call.inputs[static_cast<size_t>(operands[d])].dtype != DType::b8, "an index by a mask");
  }
  letters.index = dims(letters.index_rank, 'n', index_mark);
  const bool adjacent = !at.empty() && at.back() - at.front() + 1 == at.size();
  const size_t place = adjacent ? at.front() : 0;
  if (!adjacent) letters.result = letters.index;
  for (size_t d = 0; d < operands.size(); ++d) {
    if (adjacent && d == place) letters.result += letters.index;
    if (operands[d] >= 0)
      letters.self += {upper(d), d == at.front() ? '+' : '!'};  // windows are of the first one
    else
      letters.self += letter(d);
    if (operands[d] < 0) letters.result += letter(d);
  }
  return letters;
}

// The letters of the last `rank` dims of a text, with their marks.
std::string last_dims(const std::string& text, size_t rank) {
  size_t begin = text.size();
  for (size_t left = rank; left > 0 && begin > 0; --left) {
    --begin;
    while (begin > 0 && (text[begin] == '!' || text[begin] == '+')) --begin;
  }
  return text.substr(begin);
}

// index_add, index_copy, index_reduce(x, dim, index, source, …). `mark` is for the indexed dim of x, `index_mark` for
// the dim of the index.
OpRule rows_written(const Call& call, char mark, char index_mark) {
  const size_t rank = call.inputs[0].shape.size();
  if (rank == 0) return replicated(call);
  std::string self = dims(rank), source = self;
  const size_t dim = index_dim(call, rank);
  self.insert(dim + 1, 1, mark);
  const std::string index{'z', index_mark};
  source.replace(dim, 1, index);
  return from_letters(call, {{self, call.inputs[1].shape.empty() ? "" : index, source}, {self}});
}

}  // namespace

bool adds_rows(const Call& call) {
  const DType dtype = call.outputs.at(0).dtype;
  if (dtype == DType::b8 || !is_summed(dtype)) return false;
  const std::string_view base = base_name(call.op);
  if (base == "aten.index_put" || base == "aten._index_put_impl") return boolean(call, 3, false);
  return base == "aten.index_add" || base == "aten.scatter_add";
}

// gather(x, dim, index): the dim of the index passes.
OpRule gather(const Call& call) {
  const size_t rank = call.inputs[0].shape.size(), dim = index_dim(call, rank);
  fits(rank <= 8, "gather of rank above 8");
  std::string index = aligned(call, 1, dim, rank);
  if (rank > 0) index.replace(index.find(upper(8 + dim)), 2, "z");
  return from_letters(call, {{aligned(call, 0, dim, rank), index}, {index}});
}

// scatter(x, dim, index[, src]): equal indices write to the same place, so the dim of the index may not be cut, except
// where the op adds.
OpRule scatter(const Call& call) {
  const size_t rank = call.inputs[0].shape.size(), dim = index_dim(call, rank);
  fits(rank <= 8, "scatter of rank above 8");
  Letters letters{{}, {aligned(call, 0, dim, rank)}};
  for (size_t i = 0; i < call.inputs.size(); ++i)
    letters.inputs.push_back(call.inputs[i].shape.empty() ? "" : aligned(call, i, dim, rank));
  if (rank > 0 && adds_rows(call) && call.inputs[1].shape.at(dim) == call.inputs[2].shape.at(dim))
    for (size_t i : {1, 2}) letters.inputs[i].replace(letters.inputs[i].find(upper(i * 8 + dim)), 2, "z+");
  return from_letters(call, letters);
}

OpRule index_select(const Call& call) {
  const size_t rank = call.inputs[0].shape.size();
  if (rank == 0) return replicated(call);
  std::string self = dims(rank), out = self;
  const size_t dim = index_dim(call, rank);
  out[dim] = 'z';
  self.insert(dim + 1, "+");
  return from_letters(call, {{self, call.inputs[1].shape.empty() ? "" : "z"}, {out}});
}

OpRule index_add(const Call& call) { return rows_written(call, '+', adds_rows(call) ? '+' : '!'); }

OpRule index_copy(const Call& call) { return rows_written(call, '+', '!'); }

// Rows written to one index are reduced in other ways than a sum, so no dim of an index is cut. PyTorch's product of
// 16-bit floats refuses rows of one element, which a shard may have, so it runs whole.
OpRule index_reduce(const Call& call) {
  const auto* how = std::get_if<std::string>(&argument(call, 4));
  const bool narrow = itemsize(call.outputs.at(0).dtype) == 2 && is_floating(call.outputs.at(0).dtype);
  return narrow && how && *how == "prod" ? replicated(call) : rows_written(call, '+', '!');
}

// index_fill(x, dim, index, value)
OpRule index_fill(const Call& call) {
  const size_t rank = call.inputs[0].shape.size();
  if (rank == 0) return replicated(call);
  std::string self = dims(rank);
  self.insert(index_dim(call, rank) + 1, "+");
  Letters letters{{self, call.inputs[1].shape.empty() ? "" : "z!"}, {self}};
  if (call.inputs.size() > 2) letters.inputs.push_back("");
  return from_letters(call, letters);
}

OpRule index(const Call& call) {
  const size_t rank = call.inputs[0].shape.size();
  const std::vector<int> operands = index_operands(call, rank);
  const Indexed text = letters_of_index(call, operands, 0);
  Letters letters{{text.self}, {text.result}};
  for (size_t i = 1; i < call.inputs.size(); ++i)
    letters.inputs.push_back(last_dims(text.index, call.inputs[i].shape.size()));
  return from_letters(call, letters);
}

namespace {

// x[mask] = number: the mask covers dims of x from `first` on. All dims of x pass.
OpRule index_put_masked(const Call& call, size_t first) {
  const std::string self = dims(call.inputs[0].shape.size());
  const std::string value(call.inputs[2].shape.size(), '_');
  return from_letters(call, {{self, self.substr(first, call.inputs[1].shape.size()), value}, {self}});
}

}  // namespace

// index_put(x, indices, values, accumulate): equal indices write to the same place, so the dims of the indices may not
// be cut, except where the op adds. Dims of x without an index pass.
OpRule index_put(const Call& call) {
  const size_t rank = call.inputs[0].shape.size();
  const std::vector<int> operands = index_operands(call, rank);
  const auto first = std::find(operands.begin(), operands.end(), 1);
  const bool one_mask = call.inputs.size() == 3 && call.inputs[1].dtype == DType::b8 && first != operands.end();
  if (one_mask && numel(call.inputs[2].shape) == 1)
    return index_put_masked(call, static_cast<size_t>(first - operands.begin()));
  const Indexed text = letters_of_index(call, operands, adds_rows(call) ? '+' : '!');
  Letters letters{{text.self}, {text.self}};
  for (size_t i = 1; i + 1 < call.inputs.size(); ++i)
    letters.inputs.push_back(last_dims(text.index, call.inputs[i].shape.size()));
  letters.inputs.push_back(last_dims(text.result, call.inputs.back().shape.size()));
  OpRule rule = from_letters(call, letters);
  if (boolean(call, 3, false)) {
    rule.linearity = Linearity::joint;
    rule.linear_inputs = uint64_t{1} | uint64_t{1} << std::min<size_t>(call.inputs.size() - 1, 63);
  }
  return rule;
}

}  // namespace spmdx::rules
