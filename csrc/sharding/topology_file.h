// SPDX-License-Identifier: Apache-2.0
// Topology files: the JSON that spmdx.Topology.save and spmdx.calibrate write, read without Python.
#pragma once
#include <string>
#include <string_view>

#include "sharding/topology.h"

namespace spmdx {

// Throws ShardingError where the text is not what Topology.save writes.
Topology parse_topology(std::string_view json);

// What SPMDX_TOPOLOGY may hold: the name of a topology that comes with spmdx, or a file. Throws ShardingError where it
// is neither.
Topology topology_from(const std::string& name_or_file);

}  // namespace spmdx
