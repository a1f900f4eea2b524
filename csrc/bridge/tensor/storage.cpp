// SPDX-License-Identifier: Apache-2.0
// Counts the bytes of a storage that a layout reaches.
#include "bridge/tensor/storage.h"

#include <ATen/EmptyTensor.h>

namespace spmdx::bridge {

size_t bytes_of(const Meta& meta) {
  return at::detail::computeStorageNbytes(meta.sizes, meta.strides, c10::elementSize(meta.dtype), meta.offset);
}

void require_storage(const LazyTensor& tensor) {
  const Meta meta{c10::typeMetaToScalarType(tensor.dtype()), tensor.sizes().vec(), tensor.strides().vec(),
                  tensor.storage_offset(), true};
  TORCH_CHECK(bytes_of(meta) <= tensor.root().nbytes(), "the storage of this tensor was resized to ",
              tensor.root().nbytes(), " bytes, and the tensor shows ", bytes_of(meta),
              ". Expected a storage that holds what is read or written. Resize the storage back first.");
}

}  // namespace spmdx::bridge
