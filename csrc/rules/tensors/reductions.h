// SPDX-License-Identifier: Apache-2.0
// Reductions: sums, extrema, statistics over dims.
#pragma once
#include "rules/rule/rule.h"

namespace spmdx::rules {

// Dims that are reduced (argument `arg`) carry `mark` in the input and are missing (or 1) in every output.
OpRule reduce(const Call& call, size_t arg, Reduction reduction, char mark);

OpRule reduce_sum(const Call& call);
OpRule reduce_max(const Call& call);
OpRule reduce_min(const Call& call);
OpRule reduce_prod(const Call& call);
OpRule reduce_any(const Call& call);
OpRule reduce_all(const Call& call);
OpRule reduce_whole(const Call& call);  // reduced dims may not be cut (median)
OpRule reduce_mean(const Call& call);   // composite that ends in a sum
OpRule reduce_rows(const Call& call);   // composite (var, logsumexp)
OpRule vector_norm(const Call& call);
OpRule histc(const Call& call);             // a sum, where the ends are given
OpRule histogram_counts(const Call& call);  // sums over rows
OpRule histogram_edges(const Call& call);

Values expand_trace(Builder& builder, const Node& node);
Values expand_mean(Builder& builder, const Node& node);
Values expand_var(Builder& builder, const Node& node);  // also std, var_mean, std_mean
Values expand_vector_norm(Builder& builder, const Node& node);
Values expand_logsumexp(Builder& builder, const Node& node);

}  // namespace spmdx::rules
