// SPDX-License-Identifier: Apache-2.0
// Computes layouts of results: TensorIterator, convolutions, Fourier transforms.
#include "bridge/record/layouts/kernel_layouts.h"

#include <ATen/Context.h>
#include <ATen/TensorIterator.h>
#include <ATen/native/ConvUtils.h>
#include <ATen/native/TypeProperties.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <numeric>
#include <span>
#include <string_view>

#include "bridge/backend/aten_facts.h"
#include "bridge/backend/shard_device.h"
#include "bridge/backend/strides.h"
#include "bridge/tensor/meta.h"
#include "bridge/tensor/tensor.h"

namespace spmdx::bridge {

at::Tensor stand_in(IValues args, size_t operand) { return meta_tensor(meta_of(args[operand].toTensor())); }

namespace {

at::Tensor meta_like(const at::Tensor& tensor, at::IntArrayRef sizes, std::vector<int64_t> strides) {
  return meta_tensor({tensor.scalar_type(), sizes.vec(), std::move(strides), 0, true});
}

// ---- TensorIterator ------------------------------------------------------------------------------------------

// Whether this overload takes a number where another one takes a tensor.
bool takes_number(const OpInfo& info) {
  const std::string& overload = info.op.schema().overload_name();
  return info.base != "aten.lerp" && (overload.starts_with("Scalar") || overload.ends_with("_scalar"));
}

// A kernel converts operands of other dtypes than the common one; the converted operands have no holes. The condition
// of a choice has its own.
void convert(std::vector<at::Tensor>& all, const OpInfo& info) {
  const auto operands = std::span(all).subspan(info.base == "aten.where" && !all.empty() ? 1 : 0);
  if (operands.size() < 2) return;
  at::native::ResultTypeState state = {};
  for (const at::Tensor& operand : operands) state = at::native::update_result_type_state(operand, state);
  const at::ScalarType common = at::native::result_type(state);
  for (at::Tensor& operand : operands)
    if (operand.scalar_type() != common && operand.dim() > 0) operand = dense_like(operand);
}

// ---- convolutions --------------------------------------------------------------------------------------------

// A tensor on the shard device without memory, which nobody may read. PyTorch chooses the backend by device, sizes and
// strides.
at::Tensor unreadable(const at::Tensor& tensor) {
  static char nothing = 0;
  return at::for_blob(&nothing, tensor.sizes())
      .strides(tensor.strides())
      .options(on_shard_device(tensor.scalar_type()))
      .target_device(shard_device())
      .make_tensor();
}

// PyTorch computes a convolution of one dim as one of two, on contiguous operands of height 1.
at::Tensor with_height(const at::Tensor& tensor) { return tensor.dim() == 3 ? tensor.unsqueeze(2) : tensor; }

std::vector<int64_t> with_height(std::vector<int64_t> list, int64_t value) {
  if (list.size() == 1) list.insert(list.begin(), value);
  return list;
}

struct Convolution {
  at::MemoryFormat format;  // that the kernel wants of its operands, and gives to results
  bool by_library;          // oneDNN or cuDNN, whose results are in the format that they work in
  at::Tensor weight;
};

Convolution choose_convolution(IValues args, size_t first) {
  at::Tensor x = stand_in(args, first);
  if (x.dim() == 3) x = as_laid(x, at::MemoryFormat::Contiguous);
  x = unreadable(with_height(x));
  const at::Tensor weight = unreadable(with_height(stand_in(args, first + 1)));
  const auto ints = [&](size_t at, int64_t filling) {
    std::vector<int64_t> list = int_list(args[first + at]);
    list.resize(x.dim() - 2 - (stand_in(args, first).dim() == 3), list.empty() ? filling : list.back());
    return c10::fromIntArrayRefSlow(with_height(list, filling)).vec();
  };
  const auto backend =
      at::native::select_conv_backend(x, weight, std::nullopt, ints(3, 1), ints(4, 0), ints(5, 1),
                                      args[first + 6].toBool(), ints(7, 0), int_value(args[first + 8]), std::nullopt);
  using at::native::ConvBackend;
  const bool by_library = backend == ConvBackend::Mkldnn || backend == ConvBackend::MkldnnTranspose ||
                          backend == ConvBackend::Cudnn || backend == ConvBackend::CudnnTranspose;
  return {at::native::_determine_backend_memory_format(x, weight, backend), by_library, weight};
}

std::vector<int64_t> strides_without_height(at::MemoryFormat format, at::IntArrayRef sizes) {
  if (sizes.size() != 3) return strides_in(format, sizes);
  std::vector<int64_t> strides = strides_in(format, {sizes[0], sizes[1], 1, sizes[2]});
  strides.erase(strides.begin() + 2);
  return strides;
}

}  // namespace

at::Tensor as_laid(const at::Tensor& tensor, at::MemoryFormat format) {
  return meta_like(tensor, tensor.sizes(), strides_in(format, tensor.sizes()));
}

std::vector<int64_t> strides_in(at::MemoryFormat format, at::IntArrayRef sizes) {
  if (format == at::MemoryFormat::ChannelsLast) return c10::get_channels_last_strides_2d(sizes);
  if (format == at::MemoryFormat::ChannelsLast3d) return c10::get_channels_last_strides_3d(sizes);
  return contiguous_strides(sizes.vec());
}

at::Tensor layout_of_iterator(const std::vector<at::Tensor>& operands) {
  at::TensorIteratorConfig config;
  config.set_check_mem_overlap(false).check_all_same_dtype(false).declare_static_dtype_and_device(at::kFloat,
                                                                                                  at::kMeta);
  config.add_owned_output(at::Tensor());
  for (const at::Tensor& operand : operands) config.add_owned_const_input(operand);
  return config.build().output();
}

std::vector<at::Tensor> iterated_operands(const OpInfo& info, IValues args) {
  std::vector<at::Tensor> operands;
  for (size_t i = 0; i < args.size(); ++i) {
    if (info.kinds[i] == ArgumentKind::tensor && args[i].isTensor() && args[i].toTensor().defined()) {
      operands.push_back(stand_in(args, i));
      if (args[i].toTensor().unsafeGetTensorImpl()->is_wrapped_number())
        operands.back().unsafeGetTensorImpl()->set_wrapped_number(true);
    }
  }
  convert(operands, info);
  // Some kernels take operands in another order than the op.
  if (info.facts->back_to_front) std::reverse(operands.begin(), operands.end());
  if (info.base == "aten._prelu_kernel_backward") std::rotate(operands.begin(), operands.begin() + 1, operands.end());
  if (takes_number(info)) operands.push_back(meta_tensor({}));
  return operands;
}

std::vector<int64_t> strides_of_convolution(IValues args, size_t x, at::IntArrayRef sizes) {
  return strides_without_height(choose_convolution(args, x).format, sizes);
}

std::vector<int64_t> strides_of_weight_gradient(IValues args, size_t x, at::IntArrayRef sizes) {
  const Convolution chosen = choose_convolution(args, x);
  // Other kernels give the gradient the format of the weight that they work on: that of the given weight, if it fits
  // the kernel already.
  const bool as_given =
      !chosen.by_library && chosen.format != at::MemoryFormat::Contiguous && chosen.weight.is_contiguous(chosen.format);
  return strides_without_height(as_given ? chosen.weight.suggest_memory_format() : chosen.format, sizes);
}

at::Tensor layout_of_fft(const at::Tensor& x, const std::vector<int64_t>& dims, at::IntArrayRef sizes) {
  if (!at::hasMKL()) return meta_like(x, sizes, contiguous_strides(sizes.vec()));
  // Dims that are not transformed come first, the largest stride outermost. PyTorch orders equal strides as these
  // algorithms of the standard library leave them, so that we call the same ones.
  std::vector<int64_t> order(x.dim());
  std::iota(order.begin(), order.end(), 0);
  const auto batch_end = std::partition(
      order.begin(), order.end(), [&](int64_t d) { return std::find(dims.begin(), dims.end(), d) == dims.end(); });
  std::sort(order.begin(), batch_end, [&](int64_t a, int64_t b) { return x.stride(a) > x.stride(b); });
  std::copy(dims.begin(), dims.end(), batch_end);
  std::vector<int64_t> strides(sizes.size());
  int64_t stride = 1;
  for (size_t i = order.size(); i-- > 0; stride *= std::max<int64_t>(sizes[order[i]], 1)) strides[order[i]] = stride;
  return meta_like(x, sizes, std::move(strides));
}

std::vector<int64_t> sorted_by_stride(const at::Tensor& x, std::vector<int64_t> dims, bool last_stays) {
  std::sort(dims.begin(), dims.end() - static_cast<int64_t>(last_stays),
            [&](int64_t a, int64_t b) { return x.stride(a) > x.stride(b); });
  return dims;
}

}  // namespace spmdx::bridge
