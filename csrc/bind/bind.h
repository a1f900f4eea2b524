// SPDX-License-Identifier: Apache-2.0
// The parts of the Python module spmdx._C; each is one file of this folder.
#pragma once
#include <pybind11/pybind11.h>

#include "sharding/spec.h"

namespace spmdx {

void bind_device(pybind11::module_& module);     // register the device, generators, what is pending
void bind_processes(pybind11::module_& module);  // joining, leaving and mending a program of many processes
void bind_sharding(pybind11::module_& module);   // Mesh, PartitionSpec, Sharding, annotations
void bind_step(pybind11::module_& module);       // mark_step, shards of a tensor
void bind_topology(pybind11::module_& module);   // topologies, reshard plans
void bind_checks(pybind11::module_& module);     // debug modes of a run, replaced rules
void bind_rules(pybind11::module_& module);      // rules of users' ops
void bind_trials(pybind11::module_& module);     // what rules offer, tried one by one
void bind_manual(pybind11::module_& module);     // ops of manual regions
void bind_debug(pybind11::module_& module);      // explain, counters, dumps

}  // namespace spmdx
