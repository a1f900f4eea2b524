// SPDX-License-Identifier: Apache-2.0
// Movement: finds the dims that each op acts on, and writes the letters.
#include "rules/tensors/movement.h"

#include "graph/args.h"
#include "rules/build/acted_dims.h"
#include "rules/build/fits.h"
#include "rules/build/letters.h"
#include "rules/rule/row.h"

namespace spmdx::rules {

OpRule permute(const Call& call) {
  const size_t rank = rank_of(call);
  std::string out;
  for (int64_t d : integers(call, 1)) out += static_cast<char>('a' + normal_dim(d, rank));
  return from_letters(call, {{dims(rank)}, {out}});
}

// A dim that grows from size 1, or is new, has a factor in the output only.
OpRule expand(const Call& call) {
  const size_t rank = rank_of(call), out_rank = call.outputs[0].shape.size();
  fits(rank <= out_rank, "expand to fewer dims");
  const std::string out = dims(out_rank);
  return from_letters(call, {{out.substr(out_rank - rank)}, {out}});
}

OpRule repeat(const Call& call) {
  const size_t rank = rank_of(call), out_rank = call.outputs[0].shape.size();
  std::string out, in;
  for (size_t d = 0; d < out_rank; ++d) {
    const bool old = d + rank >= out_rank;
    const bool same = old && call.inputs[0].shape[d + rank - out_rank] == call.outputs[0].shape[d];
    const char letter = static_cast<char>('a' + static_cast<char>(d));
    out += same ? std::string{letter} : std::string{static_cast<char>(letter - 'a' + 'A'), '!'};
    if (old) in += same ? std::string{letter} : std::string{letter, '!'};
  }
  return from_letters(call, {{in}, {out}});
}

OpRule flip(const Call& call) {
  const size_t rank = rank_of(call);
  return whole_dims(call, integers(call, 1).empty() ? std::vector<bool>(rank) : acted_dims(call, 1, rank));
}

OpRule rot90(const Call& call) {
  const size_t rank = rank_of(call);
  return resize_dims(call, acted_dims(call, 2, rank));
}

OpRule unfold(const Call& call) {
  const size_t rank = rank_of(call);
  const std::vector<bool> acted = only(dim_of(call, 1, rank), rank);
  return from_letters(call, {{resized(acted, 'A')}, {resized(acted, 'B') + "_"}});
}

// unfold_backward(grad, sizes of x, dim, size, step)
OpRule unfold_backward(const Call& call) {
  const size_t rank = call.outputs[0].shape.size();
  const std::vector<bool> acted = only(dim_of(call, 2, rank), rank);
  return from_letters(call, {{resized(acted, 'A') + "_"}, {resized(acted, 'B')}});
}

OpRule fft(const Call& call) { return resize_dims(call, acted_dims(call, 1, rank_of(call))); }

OpRule resized(const Call& call) {
  const size_t rank = rank_of(call);
  return resize_dims(call, only(dim_of(call, row_of(call).arg, rank, -1), rank));
}

}  // namespace spmdx::rules
