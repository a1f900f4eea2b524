// SPDX-License-Identifier: Apache-2.0
// Diagonals: the dim of the diagonal may not be cut. Where one of the two dims is, each device reads or writes what it
// holds of the diagonal.
#include "rules/tensors/diagonals.h"

#include <algorithm>

#include "graph/args.h"
#include "rules/build/letters.h"
#include "rules/build/op_builder.h"

namespace spmdx::rules {
namespace {

struct Diagonal {
  std::string matrices, diagonals;  // letters
};

// `first` and `second` are the arguments that name the two dims of a tensor of this rank; the last two arguments stand
// for absent ones.
Diagonal diagonal_of(const Call& call, size_t rank, size_t first, size_t second, int64_t first_missing,
                     int64_t second_missing, const char* mark = "!") {
  const int64_t a = normal_dim(integer(call, first, first_missing), rank);
  const int64_t b = normal_dim(integer(call, second, second_missing), rank);
  Diagonal text;
  for (size_t d = 0; d < rank; ++d) {
    const char letter = static_cast<char>('a' + static_cast<char>(d));
    const bool acted = static_cast<int64_t>(d) == a || static_cast<int64_t>(d) == b;
    text.matrices += letter;
    if (acted)
      text.matrices += mark;
    else
      text.diagonals += letter;
  }
  text.diagonals += '_';
  return text;
}

}  // namespace

// (x, offset, dim1, dim2)
OpRule diagonal(const Call& call) {
  const Diagonal text = diagonal_of(call, call.inputs.at(0).shape.size(), 2, 3, 0, 1, "+");
  return from_letters(call, {{text.matrices}, {text.diagonals}});
}

// (grad, sizes, offset, dim1, dim2)
OpRule diagonal_backward(const Call& call) {
  const Diagonal text = diagonal_of(call, call.outputs[0].shape.size(), 3, 4, 0, 1);
  return from_letters(call, {{text.diagonals}, {text.matrices}});
}

// (x, diagonals, offset, dim1, dim2)
OpRule diagonal_scatter(const Call& call) {
  const Diagonal text = diagonal_of(call, call.outputs[0].shape.size(), 3, 4, 0, 1, "+");
  return from_letters(call, {{text.matrices, text.diagonals}, {text.matrices}});
}

// (diagonals, offset, dim1, dim2)
OpRule diag_embed(const Call& call) {
  const Diagonal text = diagonal_of(call, call.outputs[0].shape.size(), 2, 3, -2, -1);
  return from_letters(call, {{text.diagonals}, {text.matrices}});
}

namespace {

// Offset and dims, from argument `arg` on, none of them absent or negative; and that the diagonal begins at its first
// element.
std::vector<Arg> numbers_of_diagonal(const Call& call, size_t arg) {
  const size_t rank = call.inputs.at(0).shape.size();
  return {integer(call, arg, 0), normal_dim(integer(call, arg + 1, 0), rank),
          normal_dim(integer(call, arg + 2, 1), rank), int64_t{0}};
}

// In the shard at these rows and columns, the diagonal has another offset and begins elsewhere.
void localise_diagonal(const Call& call, const Box& box, size_t arg, std::vector<Arg>& args) {
  const auto starts_at = [&](size_t a) { return box.at(static_cast<size_t>(integer(call, a, 0))).start; };
  const int64_t offset = integer(call, arg, 0), row = starts_at(arg + 1), column = starts_at(arg + 2);
  const int64_t here = offset + row - column;
  args.at(arg) = here;
  args.at(arg + 3) = row + std::max<int64_t>(0, -here) - std::max<int64_t>(0, -offset);
}

}  // namespace

Values expand_diagonal(Builder& builder, const Node& node) {
  OpBuilder maths(builder, node);
  std::vector<Arg> args = numbers_of_diagonal(maths.call(), 1);
  args.insert(args.begin(), TensorArg{0});
  return {maths.emit(std::string(kReadDiagonal), std::move(args), {maths.input(0)}, {maths.output(0)})};
}

Values expand_diagonal_scatter(Builder& builder, const Node& node) {
  OpBuilder maths(builder, node);
  std::vector<Arg> args = numbers_of_diagonal(maths.call(), 2);
  args.insert(args.begin(), {TensorArg{0}, TensorArg{1}});
  return {
      maths.emit(std::string(kWriteDiagonal), std::move(args), {maths.input(0), maths.input(1)}, {maths.output(0)})};
}

OpRule read_diagonal(const Call& call) {
  const Diagonal text = diagonal_of(call, call.inputs.at(0).shape.size(), 2, 3, 0, 1, "");
  return from_letters(call, {{text.matrices}, {text.diagonals}});
}

OpRule write_diagonal(const Call& call) {
  const Diagonal text = diagonal_of(call, call.outputs[0].shape.size(), 3, 4, 0, 1, "");
  return from_letters(call, {{text.matrices, text.diagonals}, {text.matrices}});
}

void read_diagonal_first(const Call& call, const Boxes& inputs, const Boxes&, std::vector<Arg>& args) {
  localise_diagonal(call, inputs.at(0), 1, args);
}

void write_diagonal_first(const Call& call, const Boxes& inputs, const Boxes&, std::vector<Arg>& args) {
  localise_diagonal(call, inputs.at(0), 2, args);
}

}  // namespace spmdx::rules
