// SPDX-License-Identifier: Apache-2.0
// Ops that are others put together: recorded as those, so that what these may cut they may.
#include <ATen/ExpandUtils.h>
#include <ATen/Functions.h>

#include "bridge/aten_backend.h"
#include "bridge/trace.h"

namespace spmdx::bridge {
namespace {

// The result of an op; undefined: not in these arguments, which are traced as they are (and refused there).
using Compose = at::Tensor (*)(IValues args);

// The op itself, in place, and with `out=`.
template <Compose compose>
bool composed(const OpInfo& info, Stack* stack) {
  const IValues args = arguments(info, *stack);
  const at::Tensor result = compose(args);
  if (!result.defined()) return false;
  if (info.written.empty()) {
    finish(info, stack, result);
    return true;
  }
  const at::Tensor target = args[static_cast<size_t>(info.written[0])].toTensor();
  assign(target, operand(result), info.is_out);
  finish(info, stack, target);
  return true;
}

// How many elements of a flat mask are set before each one.
at::Tensor ranks(const at::Tensor& mask) { return mask.cumsum(0).sub(1); }

// (self, mask, source): the k-th set element of the mask takes the k-th of source.
at::Tensor masked_scatter(IValues args) {
  const at::Tensor self = args[0].toTensor(), mask = args[1].toTensor(), source = args[2].toTensor();
  if (mask.scalar_type() != at::kBool || self.scalar_type() != source.scalar_type() || source.numel() == 0) return {};
  const at::Tensor flat = mask.expand(self.sizes()).reshape(-1);
  const at::Tensor taken = source.reshape(-1).index({ranks(flat).masked_fill(flat.logical_not(), 0)});
  return at::where(flat, taken, self.reshape(-1)).view(self.sizes());
}

// (grad, mask, sizes): its gradient by source. What the mask leaves out adds 0 to the first element.
at::Tensor masked_scatter_backward(IValues args) {
  const at::Tensor grad = args[0].toTensor();
  const std::vector<int64_t> sizes = int_list(args[2]);
  const int64_t count = c10::multiply_integers(sizes);
  if (count == 0) return {};
  const at::Tensor flat = args[1].toTensor().expand(grad.sizes()).reshape(-1), left_out = flat.logical_not();
  const at::Tensor rows = grad.reshape(-1).masked_fill(left_out, 0);
  return at::zeros({count}, grad.options()).index_add(0, ranks(flat).masked_fill(left_out, 0), rows).view(sizes);
}

// (self, index, source, accumulate): self as if it were flat.
at::Tensor put_flat(IValues args) {
  const at::Tensor self = args[0].toTensor(), index = args[1].toTensor(), source = args[2].toTensor();
  const bool fits = index.scalar_type() == at::kLong && self.scalar_type() == source.scalar_type() &&
                    index.numel() == source.numel() && self.numel() > 0;
  if (!fits) return {};
  const at::Tensor flat = self.reshape(-1);
  return flat.index_put({index.reshape(-1)}, source.reshape(-1), args[3].toBool()).view(self.sizes());
}

// (self, index): self as if it were flat.
at::Tensor take_flat(IValues args) {
  const at::Tensor self = args[0].toTensor(), index = args[1].toTensor();
  return index.scalar_type() == at::kLong && self.numel() > 0 ? self.reshape(-1).index({index}) : at::Tensor();
}

// (self, p, dim, maxnorm): what of `dim` has a norm above maxnorm is scaled down to it.
at::Tensor renorm(IValues args) {
  const at::Tensor self = args[0].toTensor();
  const at::Scalar p = args[1].toScalar(), most = args[3].toScalar();
  const bool fits = self.dim() > 1 && !p.isComplex() && p.toDouble() > 0 && most.toDouble() >= 0 &&
                    (self.is_floating_point() || self.is_complex());
  if (!fits) return {};
  const int64_t dim = at::maybe_wrap_dim(int_value(args[2]), self.dim());
  std::vector<int64_t> others;
  for (int64_t d = 0; d < self.dim(); ++d)
    if (d != dim) others.push_back(d);
  const bool narrow = self.scalar_type() == at::kHalf || self.scalar_type() == at::kBFloat16;
  const std::optional<at::ScalarType> wide = narrow ? std::optional(at::kFloat) : std::nullopt;
  const at::Tensor norm = at::linalg_vector_norm(self, p, others, true, wide);
  // The small number is that of PyTorch: the result stays below maxnorm.
  const at::Tensor scale = norm.add(1e-7).reciprocal().mul(most);
  return self.mul(at::where(norm.gt(most), scale, at::ones_like(scale)).to(self.scalar_type()));
}

// (weight, indices, max_norm, norm_type): rows of a table that are looked up are scaled down as in renorm.
at::Tensor embedding_renorm(IValues args) {
  const at::Tensor weight = args[0].toTensor(), indices = args[1].toTensor();
  const double most = real_value(args[2]), p = real_value(args[3]);
  const at::Tensor used = at::zeros({weight.size(0)}, weight.options().dtype(at::kBool));
  const at::Tensor norm = at::linalg_vector_norm(weight, p, {1});
  const at::Tensor scaled = used.index_fill(0, indices.reshape(-1), true).logical_and(norm.gt(most));
  const at::Tensor scale = at::where(scaled, norm.add(1e-7).reciprocal().mul(most), at::ones_like(norm));
  return weight.mul(scale.unsqueeze(1));
}

// (self, batch1, batch2, beta, alpha): one product, over the batches as well.
at::Tensor addbmm(IValues args) {
  const at::Tensor a = args[1].toTensor(), b = args[2].toTensor();
  if (a.dim() != 3 || b.dim() != 3 || a.size(0) != b.size(0) || a.size(2) != b.size(1)) return {};
  const int64_t inner = a.size(0) * a.size(2);
  return at::addmm(args[0].toTensor(), a.permute({1, 0, 2}).reshape({a.size(1), inner}), b.reshape({inner, b.size(2)}),
                   args[3].toScalar(), args[4].toScalar());
}

// The same ops, that check no indices on accelerators.
at::Tensor unsafe_index(IValues args) { return args[0].toTensor().index(args[1].toOptionalTensorList()); }

at::Tensor unsafe_index_put(IValues args) {
  return args[0].toTensor().index_put(args[1].toOptionalTensorList(), args[2].toTensor(), args[3].toBool());
}

}  // namespace

void add_composite_handlers() {
  add_handler("aten._unsafe_index", composed<unsafe_index>);
  add_handler("aten._unsafe_index_put", composed<unsafe_index_put>);
  for (const char* name : {"aten.addbmm", "aten.addbmm_"}) add_handler(name, composed<addbmm>);
  add_handler("aten.embedding_renorm_", composed<embedding_renorm>);
  add_handler("aten.masked_scatter_", composed<masked_scatter>);
  add_handler("aten.masked_scatter_backward", composed<masked_scatter_backward>);
  add_handler("aten.put_", composed<put_flat>);
  for (const char* name : {"aten.renorm", "aten.renorm_"}) add_handler(name, composed<renorm>);
  add_handler("aten.take", composed<take_flat>);
}

}  // namespace spmdx::bridge
