// SPDX-License-Identifier: Apache-2.0
// Acted dims: letters for ops that act on some dims (a sort, a diagonal), while all other dims pass.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "rules/rule/rule.h"

namespace spmdx::rules {

size_t rank_of(const Call& call);  // the rank of the first operand
// The dim that argument `arg` names, counted from 0; `missing` stands for an argument that is not given.
size_t dim_of(const Call& call, size_t arg, size_t rank, int64_t missing = 0);
// One entry per dim, true for `dim` alone; all false for rank 0.
std::vector<bool> only(size_t dim, size_t rank);

// One letter per dim ('a', 'b', …); those in `acted` get the mark.
std::string marked(const std::vector<bool>& acted, char mark = '!');
// As `marked`, but acted dims have letters that no other tensor has ('!', upper case, from `tensor` on), so that their
// sizes may differ between tensors.
std::string resized(const std::vector<bool>& acted, char tensor);
// Letters of two tensors, the second without `dim`: `dim` may not be cut, all other dims pass.
std::pair<std::string, std::string> with_and_without(size_t dim, size_t rank);

// The rule under which acted dims may not be cut, and may differ in size from tensor to tensor; all others pass.
OpRule resize_dims(const Call& call, const std::vector<bool>& acted);
// The rule under which acted dims may not be cut. REQUIRES: all tensors have one shape.
OpRule whole_dims(const Call& call, const std::vector<bool>& acted);
// A family (of sort, cummax, cross): the dim in argument Row::arg, or the last where none is given, may not be cut; all
// others pass. REQUIRES: all tensors have one shape.
OpRule one_whole_dim(const Call& call);

}  // namespace spmdx::rules
