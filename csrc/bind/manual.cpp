// SPDX-License-Identifier: Apache-2.0
// Manual regions from Python: the op that permutes rows between devices.
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "bind/bind.h"
#include "bind/handles.h"
#include "bridge/ops/manual.h"

namespace spmdx {

void bind_manual(pybind11::module_& m) {
  m.def("permute_rows", [](const at::Tensor& tensor, int64_t dim, const std::vector<int64_t>& sources) {
    bind::require_lazy(tensor, "permute_rows");
    return bridge::permute_rows(tensor, dim, sources);
  });
}

}  // namespace spmdx
