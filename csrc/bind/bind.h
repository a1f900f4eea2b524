// SPDX-License-Identifier: Apache-2.0
// The parts of the Python module spmdx._C. Each function adds its names to the module, from a file of its own.
#pragma once
#include <pybind11/pybind11.h>

#include "sharding/spec.h"

namespace spmdx {

void bind_errors(pybind11::module_& module);       // exceptions of C++ as those of spmdx.errors and Python
void bind_device(pybind11::module_& module);       // registration of the device, generators, memory of tensors
void bind_processes(pybind11::module_& module);    // joining, leaving and recovering a program of several processes
void bind_sharding(pybind11::module_& module);     // meshes, shardings, annotations, shards of a tensor
void bind_step(pybind11::module_& module);         // mark_step, waiting, compile options
void bind_replay(pybind11::module_& module);       // calls that are captured and sent again
void bind_watched(pybind11::module_& module);      // Python state that guards replays
void bind_topology(pybind11::module_& module);     // topologies, reshard plans
void bind_checks(pybind11::module_& module);       // check modes of a run, overridden rules
void bind_rules(pybind11::module_& module);        // rules of users' own ops
void bind_trials(pybind11::module_& module);       // runs of one op with the shardings that its rule allows
void bind_manual(pybind11::module_& module);       // ops of manual regions
void bind_debug(pybind11::module_& module);        // reports of plans
void bind_traces(pybind11::module_& module);       // what each device of a plan does
void bind_watch(pybind11::module_& module);        // profiles, measured times, memory counters
void bind_pipeline(pybind11::module_& module);     // schedules of pipelines, costs of their stages
void bind_parallelism(pybind11::module_& module);  // ways to lay a program over devices, and what they would take
void bind_kinds(pybind11::module_& module);        // kinds of devices, and where a step runs over them
void bind_compilers(pybind11::module_& module);    // segments and who compiles them
void bind_exports(pybind11::module_& module);      // programs of steps, for other compilers

}  // namespace spmdx
