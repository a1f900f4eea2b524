// SPDX-License-Identifier: Apache-2.0
// DeviceKinds: what each device of a machine is, where they are of several kinds.
#pragma once
#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "graph/dtypes.h"
#include "sharding/hardware.h"

namespace spmdx {

struct DeviceKind {
  std::string name;  // "xla:cpu"
  Hardware hardware;
  bool own_memory = false;  // what it reads of others goes through the memory of its host
  // Of what does not just move elements, those that it runs, and of tensors of which dtypes; empty: all.
  std::set<std::string> ops = {};
  std::set<DType> dtypes = {};

  bool runs(const std::string& op) const { return ops.empty() || ops.contains(op); }
  bool runs(const Call& call) const {
    return runs(call.op) && (dtypes.empty() || std::ranges::includes(dtypes, dtypes_of(call)));
  }
};

struct DeviceKinds {
  std::vector<DeviceKind> kinds;    // empty: all devices are what the topology says
  std::vector<uint32_t> of_device;  // by the device's number
  std::string axis;                 // of meshes whose steps are placed by time; empty: none is
};

}  // namespace spmdx
