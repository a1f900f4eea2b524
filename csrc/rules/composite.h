// SPDX-License-Identifier: Apache-2.0
// Expansions of composite ops. Each returns one value per output of the node, kNone for outputs not produced.
#pragma once
#include "rules/rule.h"

namespace spmdx {

using Values = std::vector<ValueId>;
class Maths;

// linear_expand.cpp
Values expand_addmm(Builder& builder, const Node& node);  // also baddbmm, addmv
Values add_bias_after(Maths& maths);                      // of a convolution
Values expand_embedding(Builder& builder, const Node& node);
Values expand_embedding_backward(Builder& builder, const Node& node);
Values expand_amp_unscale(Builder& builder, const Node& node);
// slots.cpp
Values expand_slots(Builder& builder, const Node& node);
// extremum_expand.cpp
Values expand_extremum(Builder& builder, const Node& node);  // argmax, argmin, max and min of a dim
// blocks_expand.cpp
Values expand_scan(Builder& builder, const Node& node);  // cumsum, cumprod, logcumsumexp
Values expand_topk(Builder& builder, const Node& node);
Values expand_cat(Builder& builder, const Node& node);
// taken_rows.cpp
Values expand_taken_rows(Builder& builder, const Node& node);
// roll_expand.cpp
Values expand_roll(Builder& builder, const Node& node);
// stencil_expand.cpp
Values expand_stencil(Builder& builder, const Node& node);  // pooling
Values expand_convolution(Builder& builder, const Node& node);
Values expand_convolution_backward(Builder& builder, const Node& node);
// attention_expand.cpp
Values expand_attention(Builder& builder, const Node& node);
Values expand_attention_backward(Builder& builder, const Node& node);
Values expand_attention_block(Builder& builder, const Node& node);
// window_expand.cpp
Values expand_window(Builder& builder, const Node& node);  // gather, scatter, index_select, index_add …
// statistics_expand.cpp
Values expand_trace(Builder& builder, const Node& node);
Values expand_mean(Builder& builder, const Node& node);
Values expand_var(Builder& builder, const Node& node);  // also std, var_mean, std_mean
Values expand_vector_norm(Builder& builder, const Node& node);
Values expand_logsumexp(Builder& builder, const Node& node);
// softmax_expand.cpp
Values expand_softmax(Builder& builder, const Node& node);  // also _safe_softmax
Values expand_log_softmax(Builder& builder, const Node& node);
Values expand_softmax_backward(Builder& builder, const Node& node);
Values expand_log_softmax_backward(Builder& builder, const Node& node);
// norm_expand.cpp
Values expand_layer_norm(Builder& builder, const Node& node);
Values expand_layer_norm_backward(Builder& builder, const Node& node);
Values expand_batch_norm(Builder& builder, const Node& node);
Values expand_batch_norm_backward(Builder& builder, const Node& node);
Values expand_group_norm(Builder& builder, const Node& node);
Values expand_group_norm_backward(Builder& builder, const Node& node);
// loss_expand.cpp
Values expand_loss(Builder& builder, const Node& node);
Values expand_loss_backward(Builder& builder, const Node& node);
Values expand_nll_loss(Builder& builder, const Node& node);
Values expand_nll_loss_backward(Builder& builder, const Node& node);
// grouped.cpp
Values expand_grouped_mm(Builder& builder, const Node& node);
// ctc.cpp
Values expand_ctc_loss(Builder& builder, const Node& node);
Values expand_ctc_loss_backward(Builder& builder, const Node& node);

}  // namespace spmdx
