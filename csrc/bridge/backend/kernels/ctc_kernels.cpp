// SPDX-License-Identifier: Apache-2.0
// Kernels of CTC losses of a part of the batch.
#include <ATen/Functions.h>

#include <limits>
#include <numeric>

#include "bridge/backend/buffer.h"
#include "bridge/backend/own_kernels.h"

namespace spmdx::bridge {
namespace {

using Ints = std::vector<int64_t>;

// The logarithm of an alpha beyond a target's end, as PyTorch starts its first row.
constexpr double kImpossible = -std::numeric_limits<double>::infinity();

// The lengths of all sequences, and where ours begin.
struct Lengths {
  Ints inputs, targets;
  int64_t start = 0;

  Lengths(const Call& call, size_t first)
      : inputs(own_argument<Ints>(call, first)),
        targets(own_argument<Ints>(call, first + 1)),
        start(std::get<int64_t>(call.args.back())) {}

  static Ints part(const Ints& all, int64_t start, int64_t count) {
    return {all.begin() + start, all.begin() + start + count};
  }
  Ints own_inputs(int64_t count) const { return part(inputs, start, count); }
  Ints own_targets(int64_t count) const { return part(targets, start, count); }

  // Rows of targets are ours already; of those one after the other we take our part.
  at::Tensor own(const at::Tensor& all, int64_t count) const {
    if (all.dim() != 1) return all;
    const int64_t before = std::accumulate(targets.begin(), targets.begin() + start, int64_t{0});
    const Ints here = own_targets(count);
    return all.narrow(0, before, std::accumulate(here.begin(), here.end(), int64_t{0}));
  }
};

// (scores, targets, input_lengths, target_lengths, blank, zero_infinity, start): alphas are as wide as the longest
// target of all.
Compute prepare_ctc_loss(const Call& call) {
  return [lengths = Lengths(call, 2), blank = own_argument<int64_t>(call, 4), no_infinity = own_argument<bool>(call, 5),
          loss = call.outputs.at(0).shape, wide = call.outputs.at(1).shape](
             std::span<const BufferRef> inputs, std::span<const Param>) -> std::vector<at::Tensor> {
    const at::Tensor& scores = tensor_of(inputs[0]);
    const int64_t count = scores.size(1);
    if (count == 0) return {at::zeros(loss, scores.options()), at::zeros(wide, scores.options())};
    auto [losses, alphas] = at::_ctc_loss(scores, lengths.own(tensor_of(inputs[1]), count), lengths.own_inputs(count),
                                          lengths.own_targets(count), blank, no_infinity);
    return {losses, at::constant_pad_nd(alphas, {0, wide.at(2) - alphas.size(2)}, kImpossible)};
  };
}

// (grad, scores, targets, input_lengths, target_lengths, loss, alphas, blank, zero_infinity, start)
Compute prepare_ctc_loss_backward(const Call& call) {
  return
      [lengths = Lengths(call, 3), blank = own_argument<int64_t>(call, 7), no_infinity = own_argument<bool>(call, 8)](
          std::span<const BufferRef> inputs, std::span<const Param>) -> std::vector<at::Tensor> {
        const at::Tensor& scores = tensor_of(inputs[1]);
        const int64_t count = scores.size(1);
        if (count == 0) return {at::zeros_like(scores)};
        const Ints here = lengths.own_targets(count);
        const int64_t width = 2 * *std::max_element(here.begin(), here.end()) + 1;
        return {at::_ctc_loss_backward(tensor_of(inputs[0]), scores, lengths.own(tensor_of(inputs[2]), count),
                                       lengths.own_inputs(count), here, tensor_of(inputs[3]),
                                       tensor_of(inputs[4]).narrow(2, 0, width).contiguous(), blank, no_infinity)};
      };
}

const OwnKernels ctc_kernels = {{"spmdx.ctc_loss", prepare_ctc_loss},
                                {"spmdx.ctc_loss_backward", prepare_ctc_loss_backward}};

}  // namespace
}  // namespace spmdx::bridge
