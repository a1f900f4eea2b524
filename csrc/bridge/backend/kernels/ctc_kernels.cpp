// SPDX-License-Identifier: Apache-2.0
// Kernels of the CTC loss and its gradient, for a part of the batch.
#include <ATen/Functions.h>

#include <limits>
#include <numeric>

#include "bridge/backend/buffer.h"
#include "bridge/backend/own_kernels.h"

namespace spmdx::bridge {
namespace {

using Ints = std::vector<int64_t>;

// The log-probability (alpha) beyond the end of a target, with which PyTorch's kernel initialises alphas, too.
constexpr double kImpossible = -std::numeric_limits<double>::infinity();

// The lengths of all sequences of the batch, and the index of the first one that is here.
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

  // The targets of `count` sequences that are here. Targets in rows were cut with the batch; targets of one dim are
  // whole: those of all sequences one after the other.
  at::Tensor own(const at::Tensor& all, int64_t count) const {
    if (all.dim() != 1) return all;
    const int64_t before = std::accumulate(targets.begin(), targets.begin() + start, int64_t{0});
    const Ints here = own_targets(count);
    return all.narrow(0, before, std::accumulate(here.begin(), here.end(), int64_t{0}));
  }
};

// (scores, targets, input_lengths, target_lengths, blank, zero_infinity, start): alphas have room for the longest
// target of the whole batch.
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
