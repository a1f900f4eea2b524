// SPDX-License-Identifier: Apache-2.0
// Reading the arguments of a call, which may be absent: an op is called with fewer than its schema has.
#pragma once
#include <string>
#include <vector>

#include "graph/graph.h"

namespace spmdx {

const Arg& argument(const Call& call, size_t index);  // none where the call has fewer
int operand(const Call& call, size_t arg);            // index of a tensor operand, -1: absent
int64_t integer(const Call& call, size_t arg, int64_t missing);
double real(const Call& call, size_t arg, double missing);    // a constant, also a whole one
std::vector<int64_t> integers(const Call& call, size_t arg);  // empty where absent; an int is a list of one
bool boolean(const Call& call, size_t arg, bool missing);

// Throws InternalError where the argument is no list.
const std::vector<int64_t>& list_of_integers(const Call& call, size_t arg);

bool is_number(const Arg& arg, double number);  // a constant of that value
bool is_zero(const Arg& arg);                   // as a number, or not given

int64_t normal_dim(int64_t dim, size_t rank);
// Which dims an op acts on: the list or int in `arg`; all where it is absent or empty.
std::vector<bool> acted_dims(const Call& call, size_t arg, size_t rank);

}  // namespace spmdx
