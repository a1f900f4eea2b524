// SPDX-License-Identifier: Apache-2.0
// Kernels of grouped matrix products, for a part of the groups or of the grouped dim. ATen's own kernel is such a loop,
// too, but needs strides in multiples of 16 bytes, which shards need not have.
#include <ATen/Functions.h>

#include <algorithm>

#include "bridge/backend/aten_names.h"
#include "bridge/backend/buffer.h"
#include "bridge/backend/own_kernels.h"
#include "bridge/backend/shard_device.h"

namespace spmdx::bridge {
namespace {

// The start of our part of the grouped dim, or the first group that is here: an argument of spmdx.grouped_mm. 0 for
// ATen's op, which has a bias and a dtype in these places.
int64_t start_of(const Call& call, size_t index) {
  const auto* start = index < call.args.size() ? std::get_if<int64_t>(&call.args[index]) : nullptr;
  return start ? *start : 0;
}

// (a, b, offsets, …): offsets are the ends of all groups along the grouped dim. Where `a` and `b` both have three dims
// there are no offsets: each group has a matrix of either.
Compute prepare_grouped_mm(const Call& call) {
  return [start = start_of(call, 3), first = start_of(call, 4), shape = call.outputs.at(0).shape,
          dtype = to_scalar_type(call.outputs.at(0).dtype)](std::span<const BufferRef> inputs,
                                                            std::span<const Param>) -> std::vector<at::Tensor> {
    const at::Tensor &a = tensor_of(inputs[0]), &b = tensor_of(inputs[1]);
    const bool rows = b.dim() == 3, columns = a.dim() == 3;
    if (rows && columns) return {at::bmm(a, b).to(dtype)};
    const at::Tensor ends = to_host(tensor_of(inputs[2])).to(at::kLong).contiguous();
    at::Tensor out = at::zeros(shape, a.options().dtype(dtype));
    const int64_t extent = rows ? a.size(0) : columns ? b.size(1) : a.size(1);
    const int64_t groups = rows ? b.size(0) : columns ? a.size(0) : out.size(0);
    const auto* end_of = ends.const_data_ptr<int64_t>();
    const auto here = [&](int64_t place) { return std::clamp<int64_t>(place - start, 0, extent); };
    for (int64_t i = 0; i < groups; ++i) {
      const int64_t begin = first + i > 0 ? here(end_of[first + i - 1]) : 0, length = here(end_of[first + i]) - begin;
      if (length <= 0) continue;
      if (rows)
        out.narrow(0, begin, length).copy_(at::mm(a.narrow(0, begin, length), b.select(0, i)));
      else if (columns)
        out.narrow(1, begin, length).copy_(at::mm(a.select(0, i), b.narrow(1, begin, length)));
      else
        out.select(0, i).copy_(at::mm(a.narrow(1, begin, length), b.narrow(0, begin, length)));
    }
    return {out};
  };
}

const OwnKernels grouped_kernels = {{"aten._grouped_mm", prepare_grouped_mm}, {"spmdx.grouped_mm", prepare_grouped_mm}};

}  // namespace
}  // namespace spmdx::bridge
