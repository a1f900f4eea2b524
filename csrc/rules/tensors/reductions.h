// SPDX-License-Identifier: Apache-2.0
// Reductions over dims: sums, extrema, norms and statistics.
#pragma once
#include "rules/rule/rule.h"

namespace spmdx::rules {

// The rule of an op that reduces the dims in argument `arg`: they have `mark` in the input (0: none), and are missing
// or of size 1 in every output.
OpRule reduce(const Call& call, size_t arg, Reduction reduction, char mark);

OpRule reduce_sum(const Call& call);
OpRule reduce_max(const Call& call);
OpRule reduce_min(const Call& call);
OpRule reduce_prod(const Call& call);
OpRule reduce_any(const Call& call);
OpRule reduce_all(const Call& call);
OpRule reduce_whole(const Call& call);      // reduced dims may not be cut (median)
OpRule reduce_mean(const Call& call);       // reduced dims are composite, and the expansion ends in a sum
OpRule reduce_rows(const Call& call);       // reduced dims are composite (var, logsumexp)
OpRule vector_norm(const Call& call);       // reduced dims are composite, if the order is a constant
OpRule histc(const Call& call);             // a sum, where the range is given
OpRule histogram_counts(const Call& call);  // a sum over rows, where the range is given (_histogramdd_from_bin_cts)
OpRule histogram_edges(const Call& call);   // a sum over rows (_histogramdd_from_bin_tensors)

Values expand_trace(Builder& builder, const Node& node);
Values expand_mean(Builder& builder, const Node& node);
Values expand_var(Builder& builder, const Node& node);  // also of std, var_mean, std_mean
Values expand_vector_norm(Builder& builder, const Node& node);
Values expand_logsumexp(Builder& builder, const Node& node);

}  // namespace spmdx::rules
