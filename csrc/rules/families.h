// SPDX-License-Identifier: Apache-2.0
// Families: rules that depend on a call's attributes, one function a family.
#pragma once
#include "graph/args.h"
#include "rules/letters.h"

namespace spmdx {

// ---- pointwise and creation (pointwise.cpp) --------------------------------------------------------
OpRule pointwise(const Call& call);    // every operand broadcasts to every output
OpRule channelwise(const Call& call);  // pointwise, other operands are one of the channels (argument 3)
OpRule random_of(const Call& call);    // the same, drawn: real numbers only
OpRule where_other(const Call& call);  // linear where the other value is 0
OpRule to_copy(const Call& call);      // linear between floating dtypes
OpRule creation(const Call& call);     // no operands: all dims of the outputs are free
OpRule replicated(const Call& call);   // nothing may be cut, and that is known
OpRule arange(const Call& call);
OpRule amp_unscale(const Call& call);

// ---- lists (slots.cpp) ------------------------------------------------------------------------------
OpRule slots(const Call& call);  // element i of all lists together, pointwise (_fused_adam)

// ---- movement (reshape.cpp, movement.cpp) -------------------------------------------------------------
OpRule view(const Call& call);
OpRule view_dtype(const Call& call);
OpRule permute(const Call& call);
OpRule expand(const Call& call);
OpRule repeat(const Call& call);
OpRule slice(const Call& call);
OpRule slice_backward(const Call& call);
OpRule select(const Call& call);
OpRule select_backward(const Call& call);
OpRule slice_scatter(const Call& call);
OpRule select_scatter(const Call& call);
OpRule cat(const Call& call);
OpRule stack(const Call& call);
OpRule pad(const Call& call);
OpRule pad_backward(const Call& call);
OpRule rolled(const Call& call);
OpRule fft(const Call& call);  // the dims in argument 1 whole, of a size of their own in each tensor
OpRule flip(const Call& call);
OpRule rot90(const Call& call);
OpRule unfold(const Call& call);
OpRule unfold_backward(const Call& call);
OpRule scan(const Call& call);         // one shape, a dim whole (cummax, sort)
OpRule scan_blocks(const Call& call);  // cumsum: the dim in argument 1 is composite
OpRule topk(const Call& call);
OpRule resized(const Call& call);  // a dim has another size in each tensor (glu)

// ---- diagonals (diagonals.cpp) ------------------------------------------------------------------------
OpRule diagonal(const Call& call);
OpRule diagonal_backward(const Call& call);
OpRule diagonal_scatter(const Call& call);
OpRule diag_embed(const Call& call);

// ---- indexing (indexing.cpp, lookup.cpp) -------------------------------------------------------------------------
OpRule gather(const Call& call);
OpRule scatter(const Call& call);
OpRule index_select(const Call& call);
OpRule index_add(const Call& call);
OpRule index_copy(const Call& call);
bool adds_rows(const Call& call);  // what is written is added, also where indices meet
OpRule index_fill(const Call& call);
OpRule index_reduce(const Call& call);
OpRule index(const Call& call);
OpRule index_put(const Call& call);
OpRule embedding_backward(const Call& call);
OpRule embedding_rows(const Call& call);
OpRule masked_embedding(const Call& call);
OpRule take(const Call& call);
OpRule isin(const Call& call);
OpRule searchsorted(const Call& call);
OpRule window(const Call& call);  // window.cpp

// ---- reductions (reduce.cpp) ---------------------------------------------------------------------------
OpRule reduce_sum(const Call& call);
OpRule reduce_max(const Call& call);
OpRule reduce_min(const Call& call);
OpRule reduce_prod(const Call& call);
OpRule reduce_any(const Call& call);
OpRule reduce_all(const Call& call);
OpRule reduce_whole(const Call& call);      // reduced dims may not be cut (median)
OpRule reduce_index(const Call& call);      // extremum and where it is (argmax)
OpRule reduce_mean(const Call& call);       // composite that ends in a sum
OpRule histc(const Call& call);             // a sum, where the ends are given
OpRule reduce_rows(const Call& call);       // composite (var, logsumexp)
OpRule histogram_counts(const Call& call);  // sums over rows
OpRule histogram_edges(const Call& call);
OpRule vector_norm(const Call& call);

// ---- layers (contraction.cpp, normalisation.cpp, spatial.cpp, losses.cpp) --------------------------------
OpRule addmm(const Call& call);
OpRule baddbmm(const Call& call);
OpRule addmv(const Call& call);
OpRule addr(const Call& call);
OpRule trilinear(const Call& call);
OpRule linalg_solve(const Call& call);
OpRule scaled_mm(const Call& call);
OpRule grouped_mm(const Call& call);  // grouped.cpp
OpRule grouped_block(const Call& call);
OpRule convolution(const Call& call);
OpRule convolution_backward(const Call& call);
OpRule attention(const Call& call);  // attention.cpp
OpRule attention_backward(const Call& call);
OpRule attention_block(const Call& call);
OpRule attention_top(const Call& call);
OpRule attention_sums(const Call& call);
OpRule attention_block_backward(const Call& call);
OpRule encoder_layer(const Call& call);
OpRule multi_head_attention(const Call& call);
OpRule softmax(const Call& call);
OpRule masked_softmax(const Call& call);
OpRule weight_norm(const Call& call);  // the dim in the last argument passes
OpRule layer_norm(const Call& call);
OpRule layer_norm_backward(const Call& call);
OpRule rms_norm(const Call& call);
OpRule rms_norm_backward(const Call& call);
OpRule group_norm(const Call& call);
OpRule group_norm_backward(const Call& call);
OpRule batch_norm(const Call& call);
bool keeps_statistics(const Call& call);  // batch_norm has running ones among its arguments
OpRule batch_norm_backward(const Call& call);
OpRule planes(const Call& call);  // the last dims in parts or whole, everything before passes (pools, padding)
OpRule stencil(const Call& call);
OpRule halo(const Call& call);
OpRule parts_of_dim(const Call& call, size_t dim, int64_t parts);
OpRule take_rows(const Call& call);                                    // taken_rows.cpp
OpRule taking_rows(const Call& call, const std::vector<bool>& acted);  // of movement.cpp's slices and padding
OpRule loss(const Call& call);                                         // pointwise
OpRule loss_backward(const Call& call);
OpRule margin_loss(const Call& call);  // one number a row of classes
OpRule margin_loss_backward(const Call& call);
OpRule nll_loss(const Call& call);
OpRule nll_loss_backward(const Call& call);
OpRule ctc_loss(const Call& call);  // ctc.cpp
OpRule ctc_loss_backward(const Call& call);
OpRule ctc_block(const Call& call);
OpRule ctc_block_backward(const Call& call);
OpRule nll_rows(const Call& call);
OpRule place(const Call& call);

}  // namespace spmdx
