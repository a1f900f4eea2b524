// SPDX-License-Identifier: Apache-2.0
// Diagonals: the two dims and the dim of the diagonal may not be cut; all other dims pass.
#include "rules/tensors/diagonals.h"

#include "graph/args.h"
#include "rules/build/letters.h"

namespace spmdx::rules {
namespace {

struct Diagonal {
  std::string matrices, diagonals;  // letters
};

// `first` and `second` are the arguments that name the two dims of a tensor of this rank; the last two arguments stand
// for absent ones.
Diagonal diagonal_of(const Call& call, size_t rank, size_t first, size_t second, int64_t first_missing,
                     int64_t second_missing) {
  const int64_t a = normal_dim(integer(call, first, first_missing), rank);
  const int64_t b = normal_dim(integer(call, second, second_missing), rank);
  Diagonal text;
  for (size_t d = 0; d < rank; ++d) {
    const char letter = static_cast<char>('a' + static_cast<char>(d));
    const bool acted = static_cast<int64_t>(d) == a || static_cast<int64_t>(d) == b;
    text.matrices += letter;
    if (acted)
      text.matrices += '!';
    else
      text.diagonals += letter;
  }
  text.diagonals += '_';
  return text;
}

}  // namespace

// (x, offset, dim1, dim2)
OpRule diagonal(const Call& call) {
  const Diagonal text = diagonal_of(call, call.inputs.at(0).shape.size(), 2, 3, 0, 1);
  return from_letters(call, {{text.matrices}, {text.diagonals}});
}

// (grad, sizes, offset, dim1, dim2)
OpRule diagonal_backward(const Call& call) {
  const Diagonal text = diagonal_of(call, call.outputs[0].shape.size(), 3, 4, 0, 1);
  return from_letters(call, {{text.diagonals}, {text.matrices}});
}

// (x, diagonals, offset, dim1, dim2)
OpRule diagonal_scatter(const Call& call) {
  const Diagonal text = diagonal_of(call, call.outputs[0].shape.size(), 3, 4, 0, 1);
  return from_letters(call, {{text.matrices, text.diagonals}, {text.matrices}});
}

// (diagonals, offset, dim1, dim2)
OpRule diag_embed(const Call& call) {
  const Diagonal text = diagonal_of(call, call.outputs[0].shape.size(), 2, 3, -2, -1);
  return from_letters(call, {{text.diagonals}, {text.matrices}});
}

}  // namespace spmdx::rules
