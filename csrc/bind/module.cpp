// SPDX-License-Identifier: Apache-2.0
// Entry point of the Python module spmdx._C.
#include "bind/bind.h"

PYBIND11_MODULE(_C, module) {
  spmdx::bind_device(module);
  spmdx::bind_processes(module);
  spmdx::bind_errors(module);
  spmdx::bind_sharding(module);
  spmdx::bind_step(module);
  spmdx::bind_topology(module);
  spmdx::bind_checks(module);
  spmdx::bind_rules(module);
  spmdx::bind_trials(module);
  spmdx::bind_manual(module);
  spmdx::bind_traces(module);
  spmdx::bind_debug(module);
  spmdx::bind_watch(module);
  spmdx::bind_pipeline(module);
  spmdx::bind_parallelism(module);
  spmdx::bind_kinds(module);
  spmdx::bind_compilers(module);
  spmdx::bind_exports(module);
  pybind11::module_ replays = module.def_submodule("replays");
  spmdx::bind_replay(replays);
  spmdx::bind_watched(replays);
}
