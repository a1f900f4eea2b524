// SPDX-License-Identifier: Apache-2.0
// Corrects the dtypes of results, and which results there are, where kernels differ from meta kernels.
#include "bridge/record/layouts/correct_types.h"

#include <string_view>

#include "bridge/tensor/meta.h"

namespace spmdx::bridge {
namespace {

at::ScalarType type_of_operand(IValues args, size_t index) { return args[index].toTensor().scalar_type(); }

// The dtype of the statistics of a norm: that of `x`, or f32 if its parameters have another dtype than `x`.
at::ScalarType type_of_statistics(IValues args, size_t x, size_t first_parameter, size_t end) {
  for (size_t i = first_parameter; i < end; ++i) {
    if (!args[i].isTensor() || !args[i].toTensor().defined()) continue;
    return type_of_operand(args, i) == type_of_operand(args, x) ? type_of_operand(args, x) : at::kFloat;
  }
  return type_of_operand(args, x);
}

void set_type(Results& results, size_t index, at::ScalarType type) { results.at(index).at(0).dtype = type; }

void layer_norm(IValues args, Results& results) {
  for (const size_t r : {1, 2}) set_type(results, r, type_of_statistics(args, 0, 2, 4));
}

// (grad, x, normalized_shape, mean, rstd, weight, bias, mask)
void layer_norm_backward(IValues args, Results& results) {
  for (const size_t r : {1, 2})
    if (args[4 + r].isTensor() && args[4 + r].toTensor().defined()) set_type(results, r, type_of_operand(args, 4 + r));
}

void group_norm(IValues args, Results& results) {
  for (const size_t r : {1, 2}) set_type(results, r, type_of_statistics(args, 0, 1, 3));
}

void group_norm_backward(IValues args, Results& results) { set_type(results, 0, type_of_operand(args, 1)); }

// In evaluation the statistics are empty.
void no_statistics(Results& results) {
  for (const size_t r : {1, 2}) results[r][0].sizes = {0}, results[r][0].strides = {1};
}

// GPUs make statistics of the computation's dtype, in evaluation, too, where nobody reads them.
void statistics_of_gpus(const at::Tensor& x, Results& results) {
  for (const size_t r : {1, 2}) {
    results[r][0].sizes = {x.size(1)}, results[r][0].strides = {1};
    set_type(results, r, x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
  }
}

// (x, weight, bias, running_mean, running_var, training, …) -> (out, mean, rstd, new running_mean and running_var)
void batch_norm(IValues args, Results& results) {
  for (const size_t r : {3, 4}) set_type(results, r, type_of_operand(args, r));
  if (!shard_device().is_cpu()) return statistics_of_gpus(args[0].toTensor(), results);
  for (const size_t r : {1, 2}) set_type(results, r, type_of_statistics(args, 0, 1, 5));
  if (!args[5].toBool()) no_statistics(results);
}

void batch_norm_of_batch(IValues args, Results& results) {
  for (const size_t r : {1, 2}) set_type(results, r, type_of_statistics(args, 0, 1, 3));
}

void batch_norm_of_statistics(IValues args, Results& results) {
  for (const size_t r : {1, 2}) set_type(results, r, type_of_statistics(args, 0, 1, 5));
  no_statistics(results);
}

// PyTorch 2.11's meta kernel of attention gives f32 also to the logsumexp of doubles.
void attention(IValues args, Results& results) {
  if (type_of_operand(args, 0) == at::kDouble) set_type(results, 1, at::kDouble);
}

// (query, key, value, …, need_weights 10, …) -> (out, weights)
void multi_head_attention(IValues args, Results& results) {
  if (!args[10].toBool()) results.at(1).at(0).defined = false;
}

// The result has the dtype of `operand`; meta kernels promote both operands.
template <size_t operand>
void as_operand(IValues args, Results& results) {
  set_type(results, 0, type_of_operand(args, operand));
}

// (x, dim, keepdim, dtype): without dims the kernel sums over all; the meta kernel sums over none.
void nansum(IValues args, Results& results) {
  if (!args[1].isNone() && !int_list(args[1]).empty()) return;
  Meta& result = results.at(0).at(0);
  result.sizes.assign(args[2].toBool() ? args[0].toTensor().dim() : 0, 1);
  result.strides = result.sizes;
}

struct TypeCorrection {
  std::string_view op;
  void (*correct)(IValues args, Results& results);
  Where where = Where::on_the_cpu;
};
constexpr TypeCorrection kTypeCorrections[] = {
    {"aten._native_batch_norm_legit.no_stats", batch_norm_of_batch},
    {"aten._native_batch_norm_legit_functional", batch_norm, Where::everywhere},
    {"aten._native_batch_norm_legit_no_training", batch_norm_of_statistics},
    {"aten._native_multi_head_attention", multi_head_attention, Where::everywhere},
    {"aten._scaled_dot_product_flash_attention_for_cpu", attention, Where::everywhere},
    {"aten.huber_loss", as_operand<0>, Where::everywhere},
    {"aten.mse_loss_backward", as_operand<1>, Where::everywhere},
    {"aten.nansum", nansum, Where::everywhere},
    {"aten.native_group_norm", group_norm},
    {"aten.native_group_norm_backward", group_norm_backward},
    {"aten.native_layer_norm", layer_norm},
    {"aten.native_layer_norm_backward", layer_norm_backward},
    {"aten.smooth_l1_loss_backward", as_operand<1>, Where::everywhere},
    {"aten.soft_margin_loss", as_operand<0>, Where::everywhere},
    {"aten.soft_margin_loss_backward", as_operand<1>, Where::everywhere},
};

}  // namespace

void correct_types(const OpInfo& info, IValues args, Results& results) {
  for (const TypeCorrection& row : kTypeCorrections)
    if (row.op == info.name && holds(row.where)) row.correct(args, results);
}

}  // namespace spmdx::bridge
