// SPDX-License-Identifier: Apache-2.0
// A table of meta kernels. Structured kernels of the CPU get sizes, dtypes and strides of their results from the same.
#include "bridge/record/layouts/compiled_metas.h"

#include <ATen/ScalarOps.h>
#include <ATen/ops/_log_softmax_backward_data_meta_dispatch.h>
#include <ATen/ops/_log_softmax_backward_data_ops.h>
#include <ATen/ops/_log_softmax_meta_dispatch.h>
#include <ATen/ops/_log_softmax_ops.h>
#include <ATen/ops/_softmax_backward_data_meta_dispatch.h>
#include <ATen/ops/_softmax_backward_data_ops.h>
#include <ATen/ops/_softmax_meta_dispatch.h>
#include <ATen/ops/_softmax_ops.h>
#include <ATen/ops/add_meta_dispatch.h>
#include <ATen/ops/add_ops.h>
#include <ATen/ops/addcdiv_meta_dispatch.h>
#include <ATen/ops/addcdiv_ops.h>
#include <ATen/ops/addcmul_meta_dispatch.h>
#include <ATen/ops/addcmul_ops.h>
#include <ATen/ops/addmm_meta_dispatch.h>
#include <ATen/ops/addmm_ops.h>
#include <ATen/ops/all_meta_dispatch.h>
#include <ATen/ops/all_ops.h>
#include <ATen/ops/amax_meta_dispatch.h>
#include <ATen/ops/amax_ops.h>
#include <ATen/ops/amin_meta_dispatch.h>
#include <ATen/ops/amin_ops.h>
#include <ATen/ops/any_meta_dispatch.h>
#include <ATen/ops/any_ops.h>
#include <ATen/ops/argmax_meta_dispatch.h>
#include <ATen/ops/argmax_ops.h>
#include <ATen/ops/argmin_meta_dispatch.h>
#include <ATen/ops/argmin_ops.h>
#include <ATen/ops/atan2_meta_dispatch.h>
#include <ATen/ops/atan2_ops.h>
#include <ATen/ops/baddbmm_meta_dispatch.h>
#include <ATen/ops/baddbmm_ops.h>
#include <ATen/ops/bitwise_and_meta_dispatch.h>
#include <ATen/ops/bitwise_and_ops.h>
#include <ATen/ops/bitwise_not_meta_dispatch.h>
#include <ATen/ops/bitwise_not_ops.h>
#include <ATen/ops/bitwise_or_meta_dispatch.h>
#include <ATen/ops/bitwise_or_ops.h>
#include <ATen/ops/bmm_meta_dispatch.h>
#include <ATen/ops/bmm_ops.h>
#include <ATen/ops/cat_meta_dispatch.h>
#include <ATen/ops/cat_ops.h>
#include <ATen/ops/ceil_meta_dispatch.h>
#include <ATen/ops/ceil_ops.h>
#include <ATen/ops/clamp_max_meta_dispatch.h>
#include <ATen/ops/clamp_max_ops.h>
#include <ATen/ops/clamp_meta_dispatch.h>
#include <ATen/ops/clamp_min_meta_dispatch.h>
#include <ATen/ops/clamp_min_ops.h>
#include <ATen/ops/clamp_ops.h>
#include <ATen/ops/cos_meta_dispatch.h>
#include <ATen/ops/cos_ops.h>
#include <ATen/ops/cumsum_meta_dispatch.h>
#include <ATen/ops/cumsum_ops.h>
#include <ATen/ops/div_meta_dispatch.h>
#include <ATen/ops/div_ops.h>
#include <ATen/ops/eq_meta_dispatch.h>
#include <ATen/ops/eq_ops.h>
#include <ATen/ops/erf_meta_dispatch.h>
#include <ATen/ops/erf_ops.h>
#include <ATen/ops/exp_meta_dispatch.h>
#include <ATen/ops/exp_ops.h>
#include <ATen/ops/expm1_meta_dispatch.h>
#include <ATen/ops/expm1_ops.h>
#include <ATen/ops/floor_meta_dispatch.h>
#include <ATen/ops/floor_ops.h>
#include <ATen/ops/fmod_meta_dispatch.h>
#include <ATen/ops/fmod_ops.h>
#include <ATen/ops/gather_meta_dispatch.h>
#include <ATen/ops/gather_ops.h>
#include <ATen/ops/ge_meta_dispatch.h>
#include <ATen/ops/ge_ops.h>
#include <ATen/ops/gelu_backward_meta_dispatch.h>
#include <ATen/ops/gelu_backward_ops.h>
#include <ATen/ops/gelu_meta_dispatch.h>
#include <ATen/ops/gelu_ops.h>
#include <ATen/ops/gt_meta_dispatch.h>
#include <ATen/ops/gt_ops.h>
#include <ATen/ops/index_meta_dispatch.h>
#include <ATen/ops/index_ops.h>
#include <ATen/ops/le_meta_dispatch.h>
#include <ATen/ops/le_ops.h>
#include <ATen/ops/lerp_meta_dispatch.h>
#include <ATen/ops/lerp_ops.h>
#include <ATen/ops/linalg_vector_norm_meta_dispatch.h>
#include <ATen/ops/linalg_vector_norm_ops.h>
#include <ATen/ops/log1p_meta_dispatch.h>
#include <ATen/ops/log1p_ops.h>
#include <ATen/ops/log_meta_dispatch.h>
#include <ATen/ops/log_ops.h>
#include <ATen/ops/lt_meta_dispatch.h>
#include <ATen/ops/lt_ops.h>
#include <ATen/ops/max_meta_dispatch.h>
#include <ATen/ops/max_ops.h>
#include <ATen/ops/maximum_meta_dispatch.h>
#include <ATen/ops/maximum_ops.h>
#include <ATen/ops/mean_meta_dispatch.h>
#include <ATen/ops/mean_ops.h>
#include <ATen/ops/min_meta_dispatch.h>
#include <ATen/ops/min_ops.h>
#include <ATen/ops/minimum_meta_dispatch.h>
#include <ATen/ops/minimum_ops.h>
#include <ATen/ops/mm_meta_dispatch.h>
#include <ATen/ops/mm_ops.h>
#include <ATen/ops/mse_loss_meta_dispatch.h>
#include <ATen/ops/mse_loss_ops.h>
#include <ATen/ops/mul_meta_dispatch.h>
#include <ATen/ops/mul_ops.h>
#include <ATen/ops/ne_meta_dispatch.h>
#include <ATen/ops/ne_ops.h>
#include <ATen/ops/neg_meta_dispatch.h>
#include <ATen/ops/neg_ops.h>
#include <ATen/ops/nll_loss_backward_meta_dispatch.h>
#include <ATen/ops/nll_loss_backward_ops.h>
#include <ATen/ops/nll_loss_forward_meta_dispatch.h>
#include <ATen/ops/nll_loss_forward_ops.h>
#include <ATen/ops/pow_meta_dispatch.h>
#include <ATen/ops/pow_ops.h>
#include <ATen/ops/reciprocal_meta_dispatch.h>
#include <ATen/ops/reciprocal_ops.h>
#include <ATen/ops/round_meta_dispatch.h>
#include <ATen/ops/round_ops.h>
#include <ATen/ops/rsqrt_meta_dispatch.h>
#include <ATen/ops/rsqrt_ops.h>
#include <ATen/ops/scatter_add_meta_dispatch.h>
#include <ATen/ops/scatter_add_ops.h>
#include <ATen/ops/scatter_meta_dispatch.h>
#include <ATen/ops/scatter_ops.h>
#include <ATen/ops/sigmoid_backward_meta_dispatch.h>
#include <ATen/ops/sigmoid_backward_ops.h>
#include <ATen/ops/sigmoid_meta_dispatch.h>
#include <ATen/ops/sigmoid_ops.h>
#include <ATen/ops/sign_meta_dispatch.h>
#include <ATen/ops/sign_ops.h>
#include <ATen/ops/silu_meta_dispatch.h>
#include <ATen/ops/silu_ops.h>
#include <ATen/ops/sin_meta_dispatch.h>
#include <ATen/ops/sin_ops.h>
#include <ATen/ops/smooth_l1_loss_meta_dispatch.h>
#include <ATen/ops/smooth_l1_loss_ops.h>
#include <ATen/ops/sqrt_meta_dispatch.h>
#include <ATen/ops/sqrt_ops.h>
#include <ATen/ops/sub_meta_dispatch.h>
#include <ATen/ops/sub_ops.h>
#include <ATen/ops/sum_meta_dispatch.h>
#include <ATen/ops/sum_ops.h>
#include <ATen/ops/tanh_backward_meta_dispatch.h>
#include <ATen/ops/tanh_backward_ops.h>
#include <ATen/ops/tanh_meta_dispatch.h>
#include <ATen/ops/tanh_ops.h>
#include <ATen/ops/threshold_backward_meta_dispatch.h>
#include <ATen/ops/threshold_backward_ops.h>
#include <ATen/ops/topk_meta_dispatch.h>
#include <ATen/ops/topk_ops.h>
#include <ATen/ops/tril_meta_dispatch.h>
#include <ATen/ops/tril_ops.h>
#include <ATen/ops/triu_meta_dispatch.h>
#include <ATen/ops/triu_ops.h>

#include <cstdint>
#include <map>
#include <type_traits>

#include "bridge/record/layouts/own_metas.h"

namespace spmdx::bridge {
namespace {

// The signature of an op, with plain integers.
template <class Schema>
struct Plain;
template <class Result, class... Arguments>
struct Plain<Result(Arguments...)> {
  template <class T>
  using Argument = std::conditional_t<std::is_same_v<T, c10::SymInt>, int64_t, T>;
  using Pointer = Result (*)(Argument<Arguments>...);
};

// Ops that are kernels of other ones, called on a number or a bound.
at::Tensor relu(const at::Tensor& self) { return at::meta::clamp_min(self, 0); }
at::Tensor add_number(const at::Tensor& self, const at::Scalar& other, const at::Scalar& alpha) {
  return at::meta::add(self, at::native::wrapped_scalar_tensor(other), alpha);
}
at::Tensor sub_number(const at::Tensor& self, const at::Scalar& other, const at::Scalar& alpha) {
  return at::meta::sub(self, at::native::wrapped_scalar_tensor(other), alpha);
}
at::Tensor rsub_number(const at::Tensor& self, const at::Scalar& other, const at::Scalar& alpha) {
  return at::meta::sub(at::native::wrapped_scalar_tensor(other), self, alpha);
}
at::Tensor mul_number(const at::Tensor& self, const at::Scalar& other) {
  return at::meta::mul(self, at::native::wrapped_scalar_tensor(other));
}
at::Tensor div_number(const at::Tensor& self, const at::Scalar& other) {
  return at::meta::div(self, at::native::wrapped_scalar_tensor(other));
}

at::Tensor sum_of_all(const at::Tensor& self, std::optional<at::ScalarType> dtype) {
  return at::meta::sum(self, c10::IntArrayRef(), false, dtype);
}
at::Tensor mean_of_all(const at::Tensor& self, std::optional<at::ScalarType> dtype) {
  return at::meta::mean(self, c10::IntArrayRef(), false, dtype);
}

#define SPMDX_ROW(name, kernel, op) {name, boxed<static_cast<Plain<at::_ops::op::schema>::Pointer>(at::meta::kernel)>()}

// clang-format off
const std::map<std::string_view, c10::KernelFunction> kCompiled = {
    {"aten.add.Scalar", boxed<add_number>()},
    {"aten.div.Scalar", boxed<div_number>()},
    {"aten.mean", boxed<mean_of_all>()},
    {"aten.mul.Scalar", boxed<mul_number>()},
    {"aten.relu", boxed<relu>()},
    {"aten.rsub.Scalar", boxed<rsub_number>()},
    {"aten.sub.Scalar", boxed<sub_number>()},
    {"aten.sum", boxed<sum_of_all>()},
    SPMDX_ROW("aten._log_softmax", _log_softmax, _log_softmax),
    SPMDX_ROW("aten._log_softmax_backward_data", _log_softmax_backward_data, _log_softmax_backward_data),
    SPMDX_ROW("aten._softmax", _softmax, _softmax),
    SPMDX_ROW("aten._softmax_backward_data", _softmax_backward_data, _softmax_backward_data),
    SPMDX_ROW("aten.add.Tensor", add, add_Tensor),
    SPMDX_ROW("aten.addcdiv", addcdiv, addcdiv),
    SPMDX_ROW("aten.addcmul", addcmul, addcmul),
    SPMDX_ROW("aten.addmm", addmm, addmm),
    SPMDX_ROW("aten.all", all, all),
    SPMDX_ROW("aten.all.dim", all, all_dim),
    SPMDX_ROW("aten.amax", amax, amax),
    SPMDX_ROW("aten.amin", amin, amin),
    SPMDX_ROW("aten.any", any, any),
    SPMDX_ROW("aten.any.dim", any, any_dim),
    SPMDX_ROW("aten.argmax", argmax, argmax),
    SPMDX_ROW("aten.argmin", argmin, argmin),
    SPMDX_ROW("aten.atan2", atan2, atan2),
    SPMDX_ROW("aten.baddbmm", baddbmm, baddbmm),
    SPMDX_ROW("aten.bitwise_and.Tensor", bitwise_and, bitwise_and_Tensor),
    SPMDX_ROW("aten.bitwise_not", bitwise_not, bitwise_not),
    SPMDX_ROW("aten.bitwise_or.Tensor", bitwise_or, bitwise_or_Tensor),
    SPMDX_ROW("aten.bmm", bmm, bmm),
    SPMDX_ROW("aten.cat", cat, cat),
    SPMDX_ROW("aten.ceil", ceil, ceil),
    SPMDX_ROW("aten.clamp", clamp, clamp),
    SPMDX_ROW("aten.clamp.Tensor", clamp, clamp_Tensor),
    SPMDX_ROW("aten.clamp_max", clamp_max, clamp_max),
    SPMDX_ROW("aten.clamp_min", clamp_min, clamp_min),
    SPMDX_ROW("aten.cos", cos, cos),
    SPMDX_ROW("aten.cumsum", cumsum, cumsum),
    SPMDX_ROW("aten.div.Tensor", div, div_Tensor),
    SPMDX_ROW("aten.eq.Scalar", eq, eq_Scalar),
    SPMDX_ROW("aten.eq.Tensor", eq, eq_Tensor),
    SPMDX_ROW("aten.erf", erf, erf),
    SPMDX_ROW("aten.exp", exp, exp),
    SPMDX_ROW("aten.expm1", expm1, expm1),
    SPMDX_ROW("aten.floor", floor, floor),
    SPMDX_ROW("aten.gather", gather, gather),
    SPMDX_ROW("aten.fmod.Tensor", fmod, fmod_Tensor),
    SPMDX_ROW("aten.ge.Scalar", ge, ge_Scalar),
    SPMDX_ROW("aten.ge.Tensor", ge, ge_Tensor),
    SPMDX_ROW("aten.gelu", gelu, gelu),
    SPMDX_ROW("aten.gelu_backward", gelu_backward, gelu_backward),
    SPMDX_ROW("aten.gt.Scalar", gt, gt_Scalar),
    SPMDX_ROW("aten.gt.Tensor", gt, gt_Tensor),
    SPMDX_ROW("aten.index.Tensor", index, index_Tensor),
    SPMDX_ROW("aten.le.Scalar", le, le_Scalar),
    SPMDX_ROW("aten.le.Tensor", le, le_Tensor),
    SPMDX_ROW("aten.lerp.Scalar", lerp, lerp_Scalar),
    SPMDX_ROW("aten.linalg_vector_norm", linalg_vector_norm, linalg_vector_norm),
    SPMDX_ROW("aten.log", log, log),
    SPMDX_ROW("aten.log1p", log1p, log1p),
    SPMDX_ROW("aten.lt.Scalar", lt, lt_Scalar),
    SPMDX_ROW("aten.lt.Tensor", lt, lt_Tensor),
    SPMDX_ROW("aten.max.dim", max, max_dim),
    SPMDX_ROW("aten.maximum", maximum, maximum),
    SPMDX_ROW("aten.mean.dim", mean, mean_dim),
    SPMDX_ROW("aten.min.dim", min, min_dim),
    SPMDX_ROW("aten.minimum", minimum, minimum),
    SPMDX_ROW("aten.mm", mm, mm),
    SPMDX_ROW("aten.mse_loss", mse_loss, mse_loss),
    SPMDX_ROW("aten.mul.Tensor", mul, mul_Tensor),
    SPMDX_ROW("aten.ne.Scalar", ne, ne_Scalar),
    SPMDX_ROW("aten.ne.Tensor", ne, ne_Tensor),
    SPMDX_ROW("aten.neg", neg, neg),
    SPMDX_ROW("aten.nll_loss_backward", nll_loss_backward, nll_loss_backward),
    SPMDX_ROW("aten.nll_loss_forward", nll_loss_forward, nll_loss_forward),
    SPMDX_ROW("aten.pow.Tensor_Scalar", pow, pow_Tensor_Scalar),
    SPMDX_ROW("aten.pow.Tensor_Tensor", pow, pow_Tensor_Tensor),
    SPMDX_ROW("aten.reciprocal", reciprocal, reciprocal),
    SPMDX_ROW("aten.round", round, round),
    SPMDX_ROW("aten.rsqrt", rsqrt, rsqrt),
    SPMDX_ROW("aten.scatter.src", scatter, scatter_src),
    SPMDX_ROW("aten.scatter.value", scatter, scatter_value),
    SPMDX_ROW("aten.scatter_add", scatter_add, scatter_add),
    SPMDX_ROW("aten.sigmoid", sigmoid, sigmoid),
    SPMDX_ROW("aten.sigmoid_backward", sigmoid_backward, sigmoid_backward),
    SPMDX_ROW("aten.sign", sign, sign),
    SPMDX_ROW("aten.silu", silu, silu),
    SPMDX_ROW("aten.sin", sin, sin),
    SPMDX_ROW("aten.smooth_l1_loss", smooth_l1_loss, smooth_l1_loss),
    SPMDX_ROW("aten.sqrt", sqrt, sqrt),
    SPMDX_ROW("aten.sub.Tensor", sub, sub_Tensor),
    SPMDX_ROW("aten.sum.dim_IntList", sum, sum_dim_IntList),
    SPMDX_ROW("aten.tanh", tanh, tanh),
    SPMDX_ROW("aten.tanh_backward", tanh_backward, tanh_backward),
    SPMDX_ROW("aten.threshold_backward", threshold_backward, threshold_backward),
    SPMDX_ROW("aten.topk", topk, topk),
    SPMDX_ROW("aten.tril", tril, tril),
    SPMDX_ROW("aten.triu", triu, triu),
};
// clang-format on

}  // namespace

const c10::KernelFunction* compiled_meta(std::string_view op, const Stack& stack) {
  const auto row = kCompiled.find(op);
  return row == kCompiled.end() ? own_meta(op, stack) : &row->second;
}

}  // namespace spmdx::bridge
