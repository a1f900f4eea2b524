// SPDX-License-Identifier: Apache-2.0
// Acted dims: letters for ops that treat some dims in a way of their own, while all others pass.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "rules/rule/rule.h"

namespace spmdx::rules {

size_t rank_of(const Call& call);  // of the first operand
// The dim that an argument names.
size_t dim_of(const Call& call, size_t arg, size_t rank, int64_t missing = 0);
std::vector<bool> only(size_t dim, size_t rank);

// One letter per dim; those in `acted` get the mark.
std::string marked(const std::vector<bool>& acted, char mark = '!');
// As marked, but acted dims are letters of this tensor alone (upper case, from `tensor` on): sizes may differ.
std::string resized(const std::vector<bool>& acted, char tensor);
// `big` has one dim more than `small`: it is whole, the others pass.
std::pair<std::string, std::string> with_and_without(size_t dim, size_t rank);

// Acted dims whole and of a size of their own in every input (from 'A') and output (from 'N').
OpRule resize_dims(const Call& call, const std::vector<bool>& acted);
// Acted dims whole, in tensors of one shape.
OpRule whole_dims(const Call& call, const std::vector<bool>& acted);

}  // namespace spmdx::rules
