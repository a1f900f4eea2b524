// SPDX-License-Identifier: Apache-2.0
// Capture: what the recorder notes of a call that is to be replayed: the steps that it sends, and what these read.
#pragma once
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "bridge/tensor/root.h"
#include "runtime/step/plan.h"

namespace spmdx::bridge {

// A root that was read, and its serial, which tells when it was made.
struct ReadRoot {
  WeakRootRef root;
  uint64_t serial = 0;
};

// What a step read: data of these roots, or where there are none a number of the host.
struct SentInput {
  std::vector<ReadRoot> roots;
  DataRef number;
  ShardingRef sharding = nullptr;
};

// A step as it was sent. It holds no data of roots, since a step overwrites what nobody else holds.
struct Sent {
  PlanRef plan;
  std::vector<SentInput> inputs;
  std::vector<Param> params;    // starts behind them
  std::vector<RootRef> owners;  // the roots of its outputs, in the same order
  SourceId source = 0;          // the op that asked for it; 0: the call had ended
};

// All functions: Holds the recorder's lock.
struct Capture {
  std::vector<Sent> sent;
  // By data, the roots that held it when they were read.
  std::unordered_map<const Data*, std::vector<ReadRoot>> read;
  std::thread::id thread = std::this_thread::get_id();  // that calls; what others do is not of the call
  std::string refused;                                  // what a replay cannot do; empty: nothing so far

  void note_read(const Root& root);
  void note_sent(const PlanRef& plan, const std::vector<DataRef>& inputs, std::vector<Param> params,
                 const std::vector<RootRef>& owners);
  // Keeps the first reason.
  void refuse(const std::string& why);
};

}  // namespace spmdx::bridge
