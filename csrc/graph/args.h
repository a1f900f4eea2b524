// SPDX-License-Identifier: Apache-2.0
// Reads the arguments of a call. A call may have fewer arguments than its op's schema; a missing one reads as none.
#pragma once
#include <stdexcept>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace spmdx {

// `arg` is the number of an argument. `missing` is returned where that argument is absent or of another kind.
const Arg& argument(const Call& call, size_t index);  // std::monostate if it is absent
int operand(const Call& call, size_t arg);            // the index of a tensor among the operands, -1 if it is absent
int64_t integer(const Call& call, size_t arg, int64_t missing);
double real(const Call& call, size_t arg, double missing);    // of a number or a bool, not of a parameter
std::vector<int64_t> integers(const Call& call, size_t arg);  // empty if it is absent; an integer gives a list of one
bool boolean(const Call& call, size_t arg, bool missing);

// The list in an argument. Throws InternalError where the argument is no list of integers.
const std::vector<int64_t>& list_of_integers(const Call& call, size_t arg);

bool is_number(const Arg& arg, double number);  // whether it is a constant (a number or a bool) of that value
bool is_zero(const Arg& arg);                   // whether it is absent, or the number 0

// The operand of a call has no such dim. PyTorch refuses the call when it runs.
struct DimOutOfRange : std::out_of_range {
  using std::out_of_range::out_of_range;
};
// The dim counted from 0, of one that may count from the end. Throws DimOutOfRange.
int64_t normal_dim(int64_t dim, size_t rank);
// For each dim whether the op acts on it: the dims that argument `arg` names, or all where it is absent or empty.
std::vector<bool> acted_dims(const Call& call, size_t arg, size_t rank);

}  // namespace spmdx
