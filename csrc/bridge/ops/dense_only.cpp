// SPDX-License-Identifier: Apache-2.0
// The device has dense tensors only: ops that make or read sparse, nested or oneDNN tensors throw.
#include <torch/library.h>

#include "base/error.h"
#include "bridge/python/errors.h"
#include "bridge/record/call/handlers.h"
#include "bridge/record/call/op_info.h"
#include "bridge/record/call/schema.h"
#include "bridge/record/operands.h"
#include "bridge/recorder/recorder.h"

namespace spmdx::bridge {
namespace {

[[noreturn]] void throw_dense_only() {
  throw ShardingError(
      "spmdx holds dense tensors, no sparse, nested or oneDNN ones. Expected tensors of layout torch.strided. Keep "
      "others on the CPU (.cpu()), or do without them: padded batches, sparse=False.");
}

bool refuse(const OpInfo& info, Stack*) {
  led(info, throw_dense_only);
  return true;
}

// Replaces a message of PyTorch that would name dispatch keys, which users do not know.
void refuse_layout(const c10::OperatorHandle& op, Stack*) {
  Recorder::Lock lock;
  with_python_errors([&] { led(op_info(op), throw_dense_only); });
}

}  // namespace

TORCH_LIBRARY_IMPL(_, SparsePrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse_layout>());
}
TORCH_LIBRARY_IMPL(_, SparseCsrPrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse_layout>());
}
TORCH_LIBRARY_IMPL(_, NestedTensorPrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse_layout>());
}

namespace {

void add_dense_only_handlers() {
  for (const char* name : {"aten._to_sparse", "aten._to_sparse_csr", "aten._to_sparse_csc", "aten._to_sparse_bsr",
                           "aten._to_sparse_bsc", "aten.to_mkldnn", "aten._nested_tensor_from_tensor_list"}) {
    add_handler(name, refuse);
  }
}

const HandlersAtLoad dense_only_handlers(add_dense_only_handlers);

}  // namespace
}  // namespace spmdx::bridge
