// SPDX-License-Identifier: Apache-2.0
// Overwriting: storages are compared where the first operand's is shared.
#include "bridge/backend/overwriting.h"

#include "bridge/backend/buffer.h"

namespace spmdx::bridge {
namespace {

bool is_part_of(const BufferRef& input, const at::Tensor& first) {
  return tensor_of(input).storage().unsafeGetStorageImpl() == first.storage().unsafeGetStorageImpl();
}

bool is_held_elsewhere(const BufferRef& input) { return input.use_count() > 1 || tensor_of(input).use_count() > 1; }

}  // namespace

Overwriting::Overwriting(std::span<const BufferRef> inputs, int donated) : inputs_(inputs) {
  if (donated != 0) return;
  const at::Tensor& first = tensor_of(inputs[0]);
  if (first.storage().use_count() == 1 || inputs.size() == 1) {
    allowed_ = owns_memory_alone(first);
    return;
  }
  size_t parts = 0;
  int64_t elements = 0;
  for (const BufferRef& input : inputs.subspan(1)) {
    if (!input || !is_part_of(input, first)) continue;
    if (is_held_elsewhere(input)) return;
    ++parts;
    elements += tensor_of(input).numel();
  }
  allowed_ = 2 * elements <= first.numel() && owns_memory_alone(first, 1 + parts);
  if (!allowed_ || parts == 0) return;
  copied_.assign(inputs.begin(), inputs.end());
  for (BufferRef& input : std::span(copied_).subspan(1))
    if (input && is_part_of(input, first)) input = buffer_of(tensor_of(input).clone());
}

}  // namespace spmdx::bridge
