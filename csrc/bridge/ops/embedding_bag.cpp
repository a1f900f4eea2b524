// SPDX-License-Identifier: Apache-2.0
// Bags of embeddings, summed or averaged: recorded as a lookup and a sum by bag, so that table, bags and indices may be
// cut. The maximum of a bag is traced as ATen's own op.
#include <ATen/Functions.h>

#include "bridge/record/call/handlers.h"
#include "bridge/record/call/ivalue.h"
#include "bridge/record/call/op_info.h"
#include "bridge/record/operands.h"

namespace spmdx::bridge {
namespace {

enum : int64_t { kBagSum = 0, kBagMean = 1 };

// The indices of all bags, one bag after the other.
struct Bags {
  at::Tensor indices, of;  // `of`: the bag of each index
  int64_t count = 0, padding = -1;
};

// `count` bags, each of which begins at its offset.
Bags bags_of(const at::Tensor& indices, const at::Tensor& offsets, int64_t count, int64_t padding) {
  const auto longs = indices.options().dtype(at::kLong);
  const at::Tensor begins =
      at::zeros({indices.size(0) + 1}, longs).index_add(0, offsets.narrow(0, 0, count), at::ones({count}, longs));
  return {indices, begins.cumsum(0).sub(1).narrow(0, 0, indices.size(0)), count, padding};
}

// `rows` has one row for each index; those of padding indices become 0. `where` is linear in rows, masked_fill is not.
at::Tensor without_padding(const Bags& bags, const at::Tensor& rows) {
  return bags.padding < 0 ? rows : at::where(bags.indices.ne(bags.padding).unsqueeze(1), rows, 0);
}

// The sum of each bag's rows. The gradient of a lookup by its table is just such a sum.
at::Tensor summed(const Bags& bags, const at::Tensor& rows) {
  return at::embedding_dense_backward(rows, bags.of, bags.count, -1, false);
}

// How many indices each bag has without padding: [bags, 1].
at::Tensor bag_sizes(const Bags& bags) {
  const auto floats = bags.indices.options().dtype(at::kFloat);
  return summed(bags, without_padding(bags, at::ones({bags.indices.size(0), 1}, floats)));
}

at::Tensor averaged(const Bags& bags, const at::Tensor& of_bags) {
  return of_bags.div(bag_sizes(bags).clamp_min(1).to(of_bags.scalar_type()));
}

bool is_sum(const at::Tensor& indices, int64_t count, int64_t mode) {
  return (mode == kBagSum || mode == kBagMean) && count > 0 && indices.dim() == 1;
}

at::Tensor tensor_or_none(const c10::IValue& value) { return value.isTensor() ? value.toTensor() : at::Tensor(); }

// (weight, indices, offsets, by_frequency, mode, sparse, sample_weights, include_last_offset, padding)
// -> (result, bag of each index, bag sizes, maximum indices)
bool embedding_bag(const OpInfo& info, Stack* stack) {
  const IValues args = arguments(info, *stack);
  const at::Tensor weight = args[0].toTensor(), indices = args[1].toTensor(), offsets = args[2].toTensor();
  const int64_t count = offsets.numel() - (args[7].toBool() ? 1 : 0), mode = args[4].toInt();
  if (weight.dim() != 2 || offsets.dim() != 1 || !is_sum(indices, count, mode)) return false;
  const Bags here = bags_of(indices, offsets, count, args[8].toInt());
  const at::Tensor samples = tensor_or_none(args[6]);
  at::Tensor rows = at::embedding(weight, indices);
  if (samples.defined()) rows = rows.mul(samples.unsqueeze(1));
  at::Tensor result = summed(here, without_padding(here, rows));
  if (mode == kBagMean) result = averaged(here, result);
  const at::Tensor counted = bag_sizes(here).squeeze(1).to(indices.scalar_type());
  return finish_all(info, stack, {result, here.of.to(indices.scalar_type()), counted, counted});
}

// (grad, indices, offsets, bag of each index, bag sizes, maximum indices, rows, by_frequency, mode, sparse,
// sample_weights, padding) -> the gradient by the table
bool embedding_bag_backward(const OpInfo& info, Stack* stack) {
  const IValues args = arguments(info, *stack);
  at::Tensor grad = args[0].toTensor();
  const at::Tensor indices = args[1].toTensor(), offsets = args[2].toTensor(), samples = tensor_or_none(args[10]);
  const int64_t mode = args[8].toInt(), padding = args[11].toInt();
  if (args[9].toBool() || grad.dim() != 2 || !is_sum(indices, grad.size(0), mode)) return false;
  const Bags here = bags_of(indices, offsets, grad.size(0), padding);
  if (mode == kBagMean) grad = averaged(here, grad);
  at::Tensor rows = grad.index_select(0, here.of);
  if (samples.defined()) rows = rows.mul(samples.unsqueeze(1));
  finish(info, stack, at::embedding_dense_backward(rows, indices, int_value(args[6]), padding, args[7].toBool()));
  return true;
}

// (grad, weight, indices, offsets, bag of each index, mode, padding) -> the gradient by the weights of samples
bool sample_weights_backward(const OpInfo& info, Stack* stack) {
  const IValues args = arguments(info, *stack);
  const at::Tensor grad = args[0].toTensor(), indices = args[2].toTensor();
  if (grad.dim() != 2 || !is_sum(indices, grad.size(0), args[5].toInt())) return false;
  const Bags here = bags_of(indices, args[3].toTensor(), grad.size(0), args[6].toInt());
  const at::Tensor products = grad.index_select(0, here.of).mul(at::embedding(args[1].toTensor(), indices));
  finish(info, stack, without_padding(here, products).sum(1));
  return true;
}

void add_embedding_bag_handlers() {
  for (const char* name : {"aten._embedding_bag", "aten._embedding_bag_forward_only"}) add_handler(name, embedding_bag);
  add_handler("aten._embedding_bag_backward", embedding_bag_backward);
  add_handler("aten._embedding_bag_per_sample_weights_backward", sample_weights_backward);
}

const HandlersAtLoad embedding_bag_handlers(add_embedding_bag_handlers);

}  // namespace
}  // namespace spmdx::bridge
