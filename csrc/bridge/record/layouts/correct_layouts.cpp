// SPDX-License-Identifier: Apache-2.0
// Corrects the strides of results where kernels differ from meta kernels, many of which are decompositions in Python.
#include "bridge/record/layouts/correct_layouts.h"

#include <ATen/ops/cat.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "bridge/backend/aten_facts.h"
#include "bridge/backend/strides.h"
#include "bridge/record/layouts/kernel_layouts.h"
#include "bridge/tensor/meta.h"
#include "rules/rule/row.h"
#include "rules/tensors/pointwise.h"

namespace spmdx::bridge {
namespace {

// Losses of pairs of elements are iterated over before they are reduced.
bool is_iterated(const OpInfo& info) {
  if (info.base == "aten.mse_loss" || info.base == "aten.smooth_l1_loss") return true;
  const rules::Row* row = rules::find_row(info.name);
  return row && row->family == rules::pointwise && info.facts->iterated;
}

// Gives `result` the strides of `like`. A result of other sizes keeps its own, as the mean of a loss.
void lay(Meta& result, const at::Tensor& like) {
  if (result.defined && like.sizes() == at::IntArrayRef(result.sizes)) result.strides = like.strides().vec();
}
void lay(Meta& result, at::MemoryFormat format) {
  if (result.defined) result.strides = strides_in(format, result.sizes);
}

void iterated(const OpInfo& info, IValues args, Results& results) {
  const at::Tensor walked = layout_of_iterator(iterated_operands(info, args));
  for (auto& group : results)
    for (Meta& result : group) lay(result, walked);
}

// ---- corrections for one op each -----------------------------------------------------------------------------

using CorrectLayout = void (*)(IValues args, Results& results);

template <size_t... which>
void contiguous(IValues, Results& results) {
  (lay(results.at(which).at(0), at::MemoryFormat::Contiguous), ...);
}

// Result 0 has the layout of the operand, without holes.
template <size_t operand>
void dense(IValues args, Results& results) {
  lay(results.at(0).at(0), dense_like(stand_in(args, operand)));
}

// Results have the memory format of the operand.
template <size_t operand, size_t... which>
void in_format(IValues args, Results& results) {
  const at::MemoryFormat format = stand_in(args, operand).suggest_memory_format();
  for (const size_t r : {which...}) lay(results.at(r).at(0), format);
}

// Channels last if the operand has this format and is not contiguous, too: with sizes of 1 it may be both.
template <size_t operand>
void as_images(IValues args, Results& results) {
  const at::Tensor x = stand_in(args, operand);
  at::MemoryFormat format = at::MemoryFormat::Contiguous;
  for (const auto last : {at::MemoryFormat::ChannelsLast, at::MemoryFormat::ChannelsLast3d})
    if (!x.is_contiguous() && x.dim() == (last == at::MemoryFormat::ChannelsLast ? 4 : 5) && x.is_contiguous(last))
      format = last;
  lay(results.at(0).at(0), format);
}

void angle(IValues args, Results& results) {
  if (stand_in(args, 0).is_complex()) contiguous<0>(args, results);
}

// Volumes without a batch dim may be channels last; meta kernels know this format for batches only.
template <size_t... which>
void volumes(IValues args, Results& results) {
  const at::Tensor x = stand_in(args, 0);
  if (x.dim() != 4) return;
  const bool last = !x.is_contiguous() && x.unsqueeze(0).is_contiguous(at::MemoryFormat::ChannelsLast3d);
  for (const size_t r : {which...}) {
    Meta& result = results.at(r).at(0);
    std::vector<int64_t> sizes = result.sizes;
    sizes.insert(sizes.begin(), 1);
    result.strides = strides_in(last ? at::MemoryFormat::ChannelsLast3d : at::MemoryFormat::Contiguous, sizes);
    result.strides.erase(result.strides.begin());
  }
}

// The result has column-major matrices.
template <size_t which>
void columns(IValues, Results& results) {
  Meta& result = results.at(which).at(0);
  const size_t n = result.sizes.size();
  if (!result.defined || n < 2) return;
  result.strides = contiguous_strides(result.sizes);
  result.strides[n - 2] = 1;
  result.strides[n - 1] = std::max<int64_t>(result.sizes[n - 2], 1);
}

// The kernel computes x · 2^y, where 2^y is contiguous.
void ldexp(IValues args, Results& results) {
  lay(results.at(0).at(0),
      layout_of_iterator({stand_in(args, 0), as_laid(stand_in(args, 1), at::MemoryFormat::Contiguous)}));
}

// The kernel is pointwise on the two halves of a dim.
void glu(IValues args, Results& results) {
  const at::Tensor x = stand_in(args, 0);
  const int64_t dim = int_value(args[1]), half = results.at(0).at(0).sizes.at((dim + x.dim()) % x.dim());
  lay(results.at(0).at(0), layout_of_iterator({x.narrow(dim, 0, half), x.narrow(dim, half, half)}));
}

// The kernel makes a cat and views its dim as two dims, unless the new dim is the last one.
void stack(IValues args, Results& results) {
  std::vector<at::Tensor> parts;
  for (const auto& item : args[0].toListRef()) parts.push_back(meta_tensor(meta_of(item.toTensor())));
  const int64_t rank = parts.at(0).dim() + 1, dim = (int_value(args[1]) + rank) % rank;
  Meta& result = results.at(0).at(0);
  if (dim + 1 < rank) lay(result, at::cat(parts, dim).view(result.sizes));
}

// A copy keeps the layout of its operand, unless another memory format is asked for.
void clone(IValues args, Results& results) {
  const bool kept = args[1].isNone() || static_cast<at::MemoryFormat>(int_value(args[1])) == at::MemoryFormat::Preserve;
  if (kept) dense<0>(args, results);
}

// GPUs make rows.
template <size_t operand>
void group_norm(IValues args, Results& results) {
  shard_device().is_cpu() ? in_format<operand, 0>(args, results) : contiguous<0>(args, results);
}

void convolution(IValues args, Results& results) {
  results.at(0).at(0).strides = strides_of_convolution(args, 0, results.at(0).at(0).sizes);
}

// (grad, x, weight, sizes of the bias, …)
void convolution_backward(IValues args, Results& results) {
  Meta &of_x = results.at(0).at(0), &of_weight = results.at(1).at(0);
  if (of_x.defined) of_x.strides = strides_of_convolution(args, 1, of_x.sizes);
  if (of_weight.defined) of_weight.strides = strides_of_weight_gradient(args, 1, of_weight.sizes);
}

// Transforms, of (x, dims, …). fft_to_reals transforms the last dim by itself, after all others.
void fft(IValues args, Results& results) {
  lay(results.at(0).at(0),
      layout_of_fft(stand_in(args, 0), sorted_by_stride(stand_in(args, 0), int_list(args[1]), false),
                    results.at(0).at(0).sizes));
}
void fft_of_reals(IValues args, Results& results) {
  lay(results.at(0).at(0),
      layout_of_fft(stand_in(args, 0), sorted_by_stride(stand_in(args, 0), int_list(args[1]), true),
                    results.at(0).at(0).sizes));
}
void fft_to_reals(IValues args, Results& results) {
  std::vector<int64_t> dims = int_list(args[1]);
  at::Tensor x = stand_in(args, 0);
  const int64_t last = dims.back();
  dims.pop_back();
  if (!dims.empty()) x = layout_of_fft(x, sorted_by_stride(x, dims, false), x.sizes());
  lay(results.at(0).at(0), layout_of_fft(x, {last}, results.at(0).at(0).sizes));
}

struct LayoutCorrection {
  CorrectLayout correct;
  Where where = Where::on_the_cpu;
};
const std::unordered_map<std::string_view, LayoutCorrection> kLayoutCorrections = {
    {"aten._fft_c2c", {fft}},
    {"aten._fft_c2r", {fft_to_reals}},
    {"aten._fft_r2c", {fft_of_reals}},
    {"aten._linalg_svd", {columns<2>}},
    {"aten._log_softmax_backward_data", {contiguous<0>, Where::everywhere}},
    {"aten._native_batch_norm_legit", {as_images<0>}},
    {"aten._native_batch_norm_legit.no_stats", {as_images<0>}},
    {"aten._native_batch_norm_legit_functional", {as_images<0>}},
    {"aten._native_batch_norm_legit_no_training", {as_images<0>}},
    {"aten.angle", {angle, Where::everywhere}},
    {"aten.binary_cross_entropy", {dense<0>, Where::everywhere}},
    {"aten.binary_cross_entropy_backward", {dense<1>, Where::everywhere}},
    {"aten.channel_shuffle", {in_format<0, 0>}},
    {"aten.clone", {clone, Where::everywhere}},
    {"aten.convolution", {convolution, Where::everywhere}},
    {"aten.convolution_backward", {convolution_backward, Where::everywhere}},
    {"aten.flip", {dense<0>, Where::everywhere}},
    {"aten.glu", {glu, Where::everywhere}},
    {"aten.glu_backward", {contiguous<0>}},
    {"aten.huber_loss_backward", {contiguous<0>, Where::everywhere}},
    {"aten.im2col", {contiguous<0>, Where::everywhere}},
    {"aten.ldexp", {ldexp, Where::everywhere}},
    {"aten.linalg_eig", {columns<1>}},
    {"aten.linalg_vector_norm", {contiguous<0>, Where::everywhere}},
    {"aten.log_sigmoid_forward", {contiguous<0, 1>}},
    {"aten.max_pool3d_with_indices", {volumes<0, 1>}},
    {"aten.max_pool3d_with_indices_backward", {volumes<0>}},
    {"aten.max_unpool2d", {in_format<0, 0>}},
    {"aten.mse_loss_backward", {contiguous<0>, Where::everywhere}},
    {"aten.native_batch_norm_backward", {in_format<1, 0>}},
    {"aten.native_channel_shuffle", {in_format<0, 0>}},
    {"aten.native_group_norm", {group_norm<0>, Where::everywhere}},
    {"aten.native_group_norm_backward", {group_norm<1>, Where::everywhere}},
    {"aten.native_layer_norm_backward", {contiguous<0, 1, 2>, Where::everywhere}},
    {"aten.nll_loss2d_forward", {contiguous<0>, Where::everywhere}},
    {"aten.normal", {contiguous<0>, Where::everywhere}},
    {"aten.pixel_shuffle", {in_format<0, 0>}},
    {"aten.pixel_unshuffle", {in_format<0, 0>}},
    {"aten.pow.Scalar", {contiguous<0>, Where::everywhere}},
    {"aten.reflection_pad2d", {in_format<0, 0>}},
    {"aten.reflection_pad2d_backward", {in_format<1, 0>}},
    {"aten.reflection_pad3d", {in_format<0, 0>}},
    {"aten.reflection_pad3d_backward", {in_format<1, 0>}},
    {"aten.replication_pad2d", {in_format<0, 0>}},
    {"aten.replication_pad2d_backward", {in_format<1, 0>}},
    {"aten.replication_pad3d", {in_format<0, 0>}},
    {"aten.replication_pad3d_backward", {in_format<1, 0>}},
    {"aten.smooth_l1_loss_backward", {contiguous<0>, Where::everywhere}},
    {"aten.stack", {stack, Where::everywhere}},
};

}  // namespace

void correct_layouts(const OpInfo& info, IValues args, Results& results) {
  if (is_iterated(info)) return iterated(info, args, results);
  const auto row = rules::find_named(kLayoutCorrections, info.name);
  if (row != kLayoutCorrections.end() && holds(row->second.where)) row->second.correct(args, results);
}

}  // namespace spmdx::bridge
