// SPDX-License-Identifier: Apache-2.0
// Kernels of diagonals: of aten.diagonal_scatter, which has no variant that writes in place, and of the part of a
// diagonal that runs through a shard.
#include <ATen/Functions.h>

#include "bridge/backend/buffer.h"
#include "bridge/backend/own_kernels.h"
#include "graph/args.h"
#include "rules/tensors/diagonals.h"

namespace spmdx::bridge {
namespace {

struct Diagonal {
  int64_t offset, dim1, dim2, first;

  // Arguments from `arg` on, the last one of which may be absent.
  Diagonal(const Call& call, size_t arg)
      : offset(integer(call, arg, 0)),
        dim1(integer(call, arg + 1, 0)),
        dim2(integer(call, arg + 2, 1)),
        first(integer(call, arg + 3, 0)) {}

  at::Tensor of(const at::Tensor& matrices) const { return matrices.diagonal(offset, dim1, dim2); }
  // What a tensor of whole diagonals has of one of so many elements.
  at::Tensor part(const at::Tensor& whole, int64_t elements) const {
    return whole.narrow(-1, elements == 0 ? 0 : first, elements);
  }
};

Compute prepare_read_diagonal(const Call& call) {
  return [diagonal = Diagonal(call, 1), shape = call.outputs.at(0).shape](
             std::span<const BufferRef> inputs, std::span<const Param>) -> std::vector<at::Tensor> {
    const at::Tensor here = diagonal.of(tensor_of(inputs[0]));
    at::Tensor result = at::zeros(shape, here.options());
    diagonal.part(result, here.size(-1)).copy_(here);
    return {result};
  };
}

Write prepare_write_diagonal(const Call& call) {
  return [diagonal = Diagonal(call, 2)](at::Tensor& target, std::span<const BufferRef> inputs, std::span<const Param>) {
    at::Tensor here = diagonal.of(target);
    here.copy_(diagonal.part(tensor_of(inputs[1]), here.size(-1)));
  };
}

const OwnKernels diagonal_reads = {{rules::kReadDiagonal, prepare_read_diagonal}};
const OwnKernels diagonal_writes = {{"aten.diagonal_scatter", prepare_write_diagonal},
                                    {rules::kWriteDiagonal, prepare_write_diagonal}};

}  // namespace
}  // namespace spmdx::bridge
