// SPDX-License-Identifier: Apache-2.0
// Device traces: what each device does in a step of a plan, and what it waits for, as simulators of clusters read it.
#pragma once
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "graph/graph.h"

namespace spmdx {

// An op, a collective or one message of a device.
struct DeviceNode {
  enum class Kind : uint8_t { compute, collective, send, receive };
  Kind kind = Kind::compute;
  NodeId node = 0;              // of the plan
  int64_t ns = 0;               // by the cost model; of a message that of all of its node
  int64_t flops = 0;            // of an op
  int64_t bytes = 0;            // an op reads and writes; of a collective those of its operand; a message has
  size_t group = 0;             // of a collective: in DeviceTraces::groups()
  int64_t peer = 0;             // of a message: the other device
  std::vector<uint32_t> reads;  // nodes of the device, by number, that make what this one reads
  std::vector<uint32_t> after;  // others that are over before this one begins
};

// Nodes of a device are in program order, and so run its ops, one after the other; its collectives and messages, too.
// Devices agree on that order, so they never wait for each other in a ring. Nodes that take no time are left out: what
// reads their results waits for what they read. Figures are those of the device that has most to do, but messages are
// as long as they are.
class DeviceTraces {
 public:
  // REQUIRES: a compiled graph, which lives on.
  DeviceTraces(const Graph& graph, const Topology& topology);
  // Ids, ascending; also of those on another mesh that send what an earlier step has left there.
  const std::vector<int64_t>& devices() const { return devices_; }
  // Devices that run collectives together, by id.
  const std::vector<std::vector<int64_t>>& groups() const { return groups_; }
  // REQUIRES: one of devices().
  std::vector<DeviceNode> of(int64_t device) const;

 private:
  friend class DeviceWalk;
  struct Message {
    int64_t peer = 0, bytes = 0;
  };
  // The messages of a node, by device.
  struct Exchange {
    std::map<int64_t, std::vector<Message>> sends, receives;
  };
  // What a node of the plan takes, wherever it runs.
  struct Work {
    bool idle = true;  // it takes no time
    int64_t ns = 0, flops = 0, bytes = 0;
    size_t first_group = 0;  // of those of its sub-axes
    std::shared_ptr<const Exchange> exchange = nullptr;
  };

  Work work_of(const Node& node, const Topology& topology);
  size_t first_group_of(SubAxisSet sub_axes);
  std::shared_ptr<const Exchange> exchange_of(const Node& node);

  const Graph& graph_;
  std::vector<int64_t> devices_;
  std::vector<std::vector<int64_t>> groups_;
  std::vector<Work> works_;  // by node
  std::map<SubAxisSet, size_t> first_groups_;
  using Move = std::tuple<DType, Shape, ShardingRef, ShardingRef, int64_t, std::vector<int64_t>>;
  std::map<std::vector<Move>, std::shared_ptr<const Exchange>> exchanges_;
};

}  // namespace spmdx
