// SPDX-License-Identifier: Apache-2.0
// Limits: every constant of propagation and of the search, with its reason. None of them can make a plan wrong.
#pragma once
#include <cstddef>
#include <cstdint>

namespace spmdx {

struct Limits {
  // ---- what is propagated, and the forms of a program that are tried ----
  // Sweeps over all nodes, forth and back, after each wave of seeds. One sweep carries a layout through the whole
  // program, the next ones what follows from ties. Without a limit two ops might correct each other for ever.
  int sweeps = 8;
  // Rounds of expansion: the ops that a composite op is made of may be composite, too.
  int expansions = 4;
  // Merged dims whose rows are tried in another order. Each of them costs a search.
  size_t interleaved_dims = 3;

  // Of the time of moves, what operands of composites take that are gathered: below this share no other form is tried,
  // as it costs a search.
  double gathered_share = 0.05;

  // ---- what one op could do ----
  // Shardings of one tensor that suggest strategies. More of them make a search longer, not its plans better: the first
  // are those that the tensor has and that propagation gave it.
  size_t hints = 6;
  // Strategies that move the axes of one hint to another factor, in the order of factors. An all_to_all leads to all of
  // them, so they cost alike.
  size_t moved = 2;

  // ---- local search ----
  // Rounds over all moves of the program. Later rounds find next to nothing.
  int rounds = 3;
  // Times a node is asked again after its neighbours changed: two neighbours might react to each other for ever.
  size_t answers = 4;
  // Nodes that one chain of changes may reach: the length of a layer or two.
  size_t chain = 64;
  // Starts of a collective that a flow must save for each value more that it moves: devices wait for each other there,
  // which takes longer than a start where they share cores.
  int64_t starts_a_flow_pays = 20;
  // Failures of a chain after which it is not tried at places like these any more: the layers of a model are alike.
  int failures = 2;
  // Ops that compute, in a program that is small enough for neighbour moves. Each of these costs a chain, and in a
  // larger program some tensor has the layout that is needed.
  size_t nodes_that_try_neighbours = 8;
  // Nanoseconds: sums of the same moves in another order differ by roundings alone.
  int64_t rounding_ns = 16;

  // Of the time that a program takes if it is decided as one of other sizes was: where changes of single decisions save
  // more than this share, the sizes have changed the answer, and it is searched for from the beginning.
  double other_answer = 0.05;
  // How many costs are asked for in the search for such changes, as a share of what the searches for the other plan
  // asked for; and at least, which is about one chain.
  double second_thoughts = 0.01;
  int64_t least_second_thoughts = 64;
  // Where those asked for fewer, half as many are: such a program is planned within some milliseconds anyway.
  int64_t costs_of_a_small_search = 2'000;

  // ---- costs ----
  // Work that every device repeats may save bytes of a small problem, but never scales: sharing a product out is worth
  // more than the time it takes on one device. Where all strategies share it out alike this changes nothing.
  double weight_of_products = 20;
  // Other ops read and write memory: compilers fuse them, and memory is closer to wires on some machines than on
  // others. Cutting what they do must save four times what it moves more.
  double weight_of_other_ops = 0.25;
  // Nodes between two uses of a gathered parameter that share its copy. Beyond, as from forward to backward, it is
  // gathered again rather than held.
  uint32_t nodes_a_copy_stays = 32;
};
inline constexpr Limits kLimits;

}  // namespace spmdx
