// SPDX-License-Identifier: Apache-2.0
// Ops that are recorded as a composition of other ops, so that they can be cut wherever those can.
#include <ATen/ExpandUtils.h>
#include <ATen/Functions.h>
#include <torch/library.h>

#include "bridge/backend/strides.h"
#include "bridge/record/call/handlers.h"
#include "bridge/record/call/ivalue.h"
#include "bridge/record/call/op_info.h"
#include "bridge/record/call/overlap.h"
#include "bridge/record/operands.h"

namespace spmdx::bridge {
namespace {

// The result of an op, composed of others. Undefined: the op is recorded as it is with these arguments (or refused).
using Compose = at::Tensor (*)(IValues args);

// The handler of a composed op and of its in-place variant.
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
  assign(target, operand(result), false);
  finish(info, stack, target);
  return true;
}

// For each set element of a flat mask: how many set elements are before it.
at::Tensor ranks(const at::Tensor& mask) { return mask.cumsum(0).sub(1); }

// (self, mask, source): where the mask is set for the k-th time, element k of source.
at::Tensor masked_scatter(IValues args) {
  const at::Tensor self = args[0].toTensor(), mask = args[1].toTensor(), source = args[2].toTensor();
  if (mask.scalar_type() != at::kBool || self.scalar_type() != source.scalar_type() || source.numel() == 0) return {};
  const at::Tensor flat = mask.expand(self.sizes()).reshape(-1);
  const at::Tensor taken = source.reshape(-1).index({ranks(flat).masked_fill(flat.logical_not(), 0)});
  return at::where(flat, taken, self.reshape(-1)).view(self.sizes());
}

// (grad, mask, sizes): the gradient of masked_scatter by source. Where the mask is not set, 0 is added to element 0.
at::Tensor masked_scatter_backward(IValues args) {
  const at::Tensor grad = args[0].toTensor();
  const std::vector<int64_t> sizes = int_list(args[2]);
  const int64_t count = c10::multiply_integers(sizes);
  if (count == 0) return {};
  const at::Tensor flat = args[1].toTensor().expand(grad.sizes()).reshape(-1), left_out = flat.logical_not();
  const at::Tensor rows = grad.reshape(-1).masked_fill(left_out, 0);
  return at::zeros({count}, grad.options()).index_add(0, ranks(flat).masked_fill(left_out, 0), rows).view(sizes);
}

// (self, index, source, accumulate): writes to self as if it had one dim.
at::Tensor put_flat(IValues args) {
  const at::Tensor self = args[0].toTensor(), index = args[1].toTensor(), source = args[2].toTensor();
  const bool fits = index.scalar_type() == at::kLong && self.scalar_type() == source.scalar_type() &&
                    index.numel() == source.numel() && self.numel() > 0;
  if (!fits) return {};
  const at::Tensor flat = self.reshape(-1);
  return flat.index_put({index.reshape(-1)}, source.reshape(-1), args[3].toBool()).view(self.sizes());
}

// (self, index): reads self as if it had one dim.
at::Tensor take_flat(IValues args) {
  const at::Tensor self = args[0].toTensor(), index = args[1].toTensor();
  return index.scalar_type() == at::kLong && self.numel() > 0 ? self.reshape(-1).index({index}) : at::Tensor();
}

// (self, p, dim, maxnorm): slices along `dim` whose norm is above maxnorm are scaled down to it.
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
  // PyTorch adds 1e-7, too: the norm of the result stays below maxnorm.
  const at::Tensor scale = norm.add(1e-7).reciprocal().mul(most);
  // The result of PyTorch's kernel is always contiguous.
  return self.mul(at::where(norm.gt(most), scale, at::ones_like(scale)).to(self.scalar_type())).contiguous();
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

// (self, batch1, batch2, beta, alpha): one matrix product, which sums over the batches as well.
at::Tensor addbmm(IValues args) {
  const at::Tensor a = args[1].toTensor(), b = args[2].toTensor();
  if (a.dim() != 3 || b.dim() != 3 || a.size(0) != b.size(0) || a.size(2) != b.size(1)) return {};
  const int64_t inner = a.size(0) * a.size(2);
  return at::addmm(args[0].toTensor(), a.permute({1, 0, 2}).reshape({a.size(1), inner}), b.reshape({inner, b.size(2)}),
                   args[3].toScalar(), args[4].toScalar());
}

// Differs from index only in that an accelerator does not check indices; likewise _unsafe_index_put.
at::Tensor unsafe_index(IValues args) { return args[0].toTensor().index(args[1].toOptionalTensorList()); }

at::Tensor unsafe_index_put(IValues args) {
  return args[0].toTensor().index_put(args[1].toOptionalTensorList(), args[2].toTensor(), args[3].toBool());
}

// masked_fill_ of an expanded tensor: an element is filled if the mask is set at any of its places.
bool masked_fill_(const OpInfo& info, Stack* stack) {
  const IValues args = arguments(info, *stack);
  const at::Tensor self = args[0].toTensor();
  if (!may_repeat(self.sizes(), self.strides())) return false;
  std::vector<int64_t> repeated, once = self.sizes().vec();
  for (int64_t d = 0; d < self.dim(); ++d) {
    if (self.stride(d) != 0 || self.size(d) == 1) continue;
    repeated.push_back(d);
    once[static_cast<size_t>(d)] = 1;
  }
  if (may_repeat(once, self.strides())) refuse_repeats();
  const at::Tensor mask = at::any(args[1].toTensor().expand(self.sizes()), repeated, true).expand(self.sizes());
  const at::Tensor filled = args[2].isTensor() ? at::masked_fill(self, mask, args[2].toTensor())
                                               : at::masked_fill(self, mask, args[2].toScalar());
  assign(self, operand(filled), false);
  finish(info, stack, self);
  return true;
}

// The LU factors of matrices that are not contiguous. PyTorch's kernel of det transposes a contiguous matrix before it
// factors it, and the formula of the gradient asks whether the matrix was contiguous. Both must go by the layout of the
// recorded tensor, whatever the layout of its shards.
struct Factored {
  at::Tensor lu, pivots, diagonal, parity;
};

std::optional<Factored> factored(IValues args) {
  const at::Tensor a = args[0].toTensor();
  if (a.is_contiguous() || a.dim() < 2 || a.size(-1) != a.size(-2)) return std::nullopt;
  const auto [lu, pivots, info] = at::linalg_lu_factor_ex(a);
  const at::Tensor unmoved = at::arange(1, a.size(-1) + 1, pivots.options());
  const at::Tensor parity = pivots.ne(unmoved).sum(-1).remainder(2).mul(-2).add(1).to(a.scalar_type());
  return Factored{lu, pivots, lu.diagonal(0, -2, -1), parity};
}

bool linalg_det(const OpInfo& info, Stack* stack) {
  const auto f = factored(arguments(info, *stack));
  if (!f) return false;
  return finish_all(info, stack, {f->diagonal.prod(-1).mul(f->parity), f->lu, f->pivots});
}

bool linalg_slogdet(const OpInfo& info, Stack* stack) {
  const auto f = factored(arguments(info, *stack));
  if (!f) return false;
  const at::Tensor sign = f->diagonal.sgn().prod(-1).mul(f->parity), logarithm = f->diagonal.abs().log().sum(-1);
  return finish_all(info, stack, {sign, logarithm, f->lu, f->pivots});
}

// PyTorch's own kernel writes through the result of an `_unsafe_view`, which is no view on this device.
at::Tensor& kron_out(const at::Tensor& self, const at::Tensor& other, at::Tensor& out) {
  const at::Tensor result = at::kron(self, other);
  TORCH_CHECK(c10::canCast(result.scalar_type(), out.scalar_type()), "result type ", result.scalar_type(),
              " can't be cast to the desired output type ", out.scalar_type());
  if (out.sizes() != result.sizes()) out.resize_(result.sizes());
  return out.copy_(result);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) { library.impl("kron.out", kron_out); }

namespace {

void add_composite_handlers() {
  add_handler("aten.masked_fill_", masked_fill_);
  add_handler("aten._unsafe_index", composed<unsafe_index>);
  add_handler("aten._unsafe_index_put", composed<unsafe_index_put>);
  for (const char* name : {"aten.addbmm", "aten.addbmm_"}) add_handler(name, composed<addbmm>);
  add_handler("aten._linalg_det", linalg_det);
  add_handler("aten._linalg_slogdet", linalg_slogdet);
  add_handler("aten.embedding_renorm_", composed<embedding_renorm>);
  add_handler("aten.masked_scatter_", composed<masked_scatter>);
  add_handler("aten.masked_scatter_backward", composed<masked_scatter_backward>);
  add_handler("aten.put_", composed<put_flat>);
  for (const char* name : {"aten.renorm", "aten.renorm_"}) add_handler(name, composed<renorm>);
  add_handler("aten.take", composed<take_flat>);
}

const HandlersAtLoad composite_handlers(add_composite_handlers);

}  // namespace
}  // namespace spmdx::bridge
