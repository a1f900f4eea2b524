// SPDX-License-Identifier: Apache-2.0
// The device from Python: its registration, its random state, and the memory of its tensors.
#include <pybind11/functional.h>
#include <torch/csrc/utils/pybind.h>

#include "bind/bind.h"
#include "bridge/backend/shard_device.h"
#include "bridge/device/autograd_threads.h"
#include "bridge/device/device.h"
#include "bridge/device/ties.h"
#include "bridge/python/signals.h"
#include "bridge/python/source.h"
#include "bridge/record/register.h"
#include "bridge/recorder/engine.h"
#include "bridge/recorder/resize.h"
#include "bridge/step/read_back.h"
#include "bridge/tensor/generator.h"
#include "bridge/tensor/tensor.h"

namespace spmdx {

namespace py = pybind11;

void bind_device(py::module_& module) {
  module.def(
      "register_device",
      [](const bridge::Composes& composed) {
        bridge::heed_signals();
        bridge::register_hooks();
        bridge::register_all(composed);
      },
      py::arg("composed"));
  module.def("manual_seed", &bridge::manual_seed, py::arg("seed"));
  module.def("default_generator", [] { return bridge::default_generator(); });
  module.def(
      "set_shard_device",
      [](const std::string& device, bool compared) { bridge::set_shard_device(c10::Device(device), compared); },
      py::arg("device"), py::arg("compared") = false);
  module.def("shard_device", [] { return bridge::shard_device().str(); });
  module.def("is_lazy", [](const at::Tensor& tensor) { return bridge::as_lazy(tensor) != nullptr; });
  module.def("resize_storage", &bridge::resize_storage);
  module.def("memory_id", &bridge::memory_id);
  module.def("peek", &bridge::peek_dense);
  module.def("shows_whole", &bridge::shows_whole);
  module.def("is_strided", &bridge::is_strided);
  module.def("shares_memory", &bridge::shares_memory);
  module.def("whole_of", &bridge::whole_of);
  module.def("copy_of_whole", &bridge::copy_of_whole);
  module.def("show_same_of", &bridge::show_same_of);
  module.def("set_libraries", &bridge::set_libraries);
  module.def("set_name_of_files",
             [](const py::typing::Callable<py::str(py::str)>& function) { bridge::set_name_of_files(function.ptr()); });
  module.def("in_forked_child", &in_forked_child);
  module.def("wait_at_exit", [] {
    if (in_forked_child()) return;  // a forked child has none of the threads that are waited for
    py::gil_scoped_release no_gil;
    bridge::engine().wait();
    bridge::wait_for_autograd();
  });
}

}  // namespace spmdx
