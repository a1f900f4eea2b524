// SPDX-License-Identifier: Apache-2.0
// Device traces: nodes of a plan, seen by one device after the other.
#include "runtime/step/device_traces.h"

#include <algorithm>
#include <set>

#include "graph/places.h"
#include "passes/report/flops.h"
#include "passes/strategy/clock.h"
#include "runtime/collective/sent.h"
#include "sharding/shards.h"

namespace spmdx {
namespace {

int64_t bytes_of(const Graph& graph, ValueId id) {
  const Value& value = graph.values[id];
  return value.type.dtype == DType::unknown ? 0 : bytes_on_a_device(value.type, value.sharding);
}

int64_t operand_bytes(const Graph& graph, const Node& node) {
  int64_t bytes = 0;
  for (const ValueId input : node.inputs)
    if (input != kNone) bytes += bytes_of(graph, input);
  return bytes;
}

int64_t result_bytes(const Graph& graph, const Node& node) {
  int64_t bytes = 0;
  for (size_t r = 0; r < node.call->outputs.size(); ++r)
    bytes += bytes_of(graph, node.output + static_cast<ValueId>(r));
  return bytes;
}

// Whether devices send each other what each of them lacks, not all of a group the like. What comes from another mesh
// has no group.
bool is_exchange(const Graph& graph, const Node& node) {
  const Collective kind = collective_kind(node);
  const bool between_two = kind == Collective::send_recv || kind == Collective::collective_permute;
  return between_two || node.sub_axes == 0 || changes_place(graph, node);
}

}  // namespace

DeviceTraces::DeviceTraces(const Graph& graph, const Topology& topology) : graph_(graph) {
  std::set<int64_t> devices{0};
  if (graph.mesh) devices = {graph.mesh->device_ids().begin(), graph.mesh->device_ids().end()};
  for (const Node& node : graph.nodes) {
    works_.push_back(work_of(node, topology));
    if (works_.back().exchange)
      for (const auto& [device, messages] : works_.back().exchange->sends) devices.insert(device);
  }
  devices_.assign(devices.begin(), devices.end());
}

DeviceTraces::Work DeviceTraces::work_of(const Node& node, const Topology& topology) {
  Work work{.ns = clock_ns(graph_, node, topology), .bytes = operand_bytes(graph_, node)};
  if (!is_collective(node)) {
    work.idle = work.ns == 0;
    work.flops = static_cast<int64_t>(flops_on_a_device(graph_, node));
    work.bytes += result_bytes(graph_, node);
  } else if (node.bytes > 0) {
    work.idle = false;
    if (is_exchange(graph_, node))
      work.exchange = exchange_of(node);
    else
      work.first_group = first_group_of(node.sub_axes);
  }
  return work;
}

// Groups along the same sub-axes are numbered by the digits of all others.
size_t DeviceTraces::first_group_of(SubAxisSet sub_axes) {
  const auto [known, fresh] = first_groups_.try_emplace(sub_axes, groups_.size());
  if (!fresh) return known->second;
  const Mesh& mesh = *graph_.mesh;
  const SubAxisSet others = mesh.all_sub_axes() & ~sub_axes;
  groups_.resize(groups_.size() + static_cast<size_t>(num_distinct(mesh, others)));
  for (int64_t position = 0; position < mesh.size(); ++position)
    groups_[known->second + static_cast<size_t>(distinct_index(mesh, others, position))].push_back(
        mesh.device_ids()[position]);
  return known->second;
}

std::shared_ptr<const DeviceTraces::Exchange> DeviceTraces::exchange_of(const Node& node) {
  std::vector<Move> moves;
  const RowMap rows = row_map(*node.call);
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const Value &from = graph_.values[node.inputs[i]], &to = graph_.values[node.output + i];
    moves.emplace_back(from.type.dtype, from.type.shape, from.sharding, to.sharding, rows.dim, rows.sources);
  }
  std::shared_ptr<const Exchange>& known = exchanges_[moves];
  if (known) return known;
  std::map<std::pair<int64_t, int64_t>, int64_t> bytes;  // by receiver and sender
  for (const auto& [dtype, shape, from, to, dim, sources] : moves)
    for (const Sent& one : sent({shape, from, to, rows}, dtype)) bytes[{one.to, one.from}] += one.bytes;
  auto exchange = std::make_shared<Exchange>();
  for (const auto& [ends, size] : bytes) {
    exchange->receives[ends.first].push_back({ends.second, size});
    exchange->sends[ends.second].push_back({ends.first, size});
  }
  return known = exchange;
}

// The plan as one device goes through it.
class DeviceWalk {
 public:
  DeviceWalk(const DeviceTraces& traces, int64_t device)
      : traces_(traces), graph_(traces.graph_), device_(device), makers_(graph_.values.size()) {
    if (!graph_.mesh) return;
    const std::vector<int64_t>& ids = graph_.mesh->device_ids();
    const auto at = std::find(ids.begin(), ids.end(), device);
    position_ = at == ids.end() ? -1 : at - ids.begin();
  }

  std::vector<DeviceNode> run() {
    for (NodeId id = 0; id < graph_.nodes.size(); ++id) visit(id);
    return std::move(nodes_);
  }

 private:
  using Numbers = std::vector<uint32_t>;

  bool runs_here(const Node& node) const {
    return !graph_.mesh || (position_ >= 0 && lies_at(*graph_.mesh, place_of(graph_, node), position_));
  }

  // The nodes that make what this one reads, ascending.
  Numbers reads_of(const Node& node) const {
    Numbers reads;
    for (const ValueId input : node.inputs)
      if (input != kNone) reads.insert(reads.end(), makers_[input].begin(), makers_[input].end());
    std::sort(reads.begin(), reads.end());
    reads.erase(std::unique(reads.begin(), reads.end()), reads.end());
    return reads;
  }

  void visit(NodeId id) {
    const Node& node = graph_.nodes[id];
    const DeviceTraces::Work& work = traces_.works_[id];
    const bool here = runs_here(node);
    if (!here && !work.exchange) return;
    Numbers made = reads_of(node);
    if (work.exchange)
      made = add_messages(id, work, made);
    else if (!work.idle)
      made = add(id, work, std::move(made));
    if (!here) return;
    for (size_t r = 0; r < node.call->outputs.size(); ++r) makers_[node.output + r] = made;
  }

  // Appends an op or a collective.
  Numbers add(NodeId id, const DeviceTraces::Work& work, Numbers reads) {
    const bool op = !is_collective(graph_.nodes[id]);
    DeviceNode node;
    node.kind = op ? DeviceNode::Kind::compute : DeviceNode::Kind::collective;
    node.node = id;
    node.flops = work.flops;
    node.bytes = work.bytes;
    if (!op) node.group = work.first_group + group_of(graph_.nodes[id].sub_axes);
    Numbers& before = op ? last_op_ : last_moves_;
    return before = {append(std::move(node), work, std::move(reads), before)};
  }

  // Appends what the device sends and receives; returns who makes what it has then.
  Numbers add_messages(NodeId id, const DeviceTraces::Work& work, const Numbers& reads) {
    Numbers all, received;
    const auto each = [&](DeviceNode::Kind kind, const auto& by_device, Numbers& numbers) {
      const auto messages = by_device.find(device_);
      if (messages == by_device.end()) return;
      for (const auto& [peer, bytes] : messages->second) {
        DeviceNode node;
        node.kind = kind;
        node.node = id;
        node.bytes = bytes;
        node.peer = peer;
        numbers.push_back(append(std::move(node), work, reads, last_moves_));
      }
    };
    each(DeviceNode::Kind::send, work.exchange->sends, all);
    each(DeviceNode::Kind::receive, work.exchange->receives, received);
    all.insert(all.end(), received.begin(), received.end());
    if (!all.empty()) last_moves_ = all;
    return received.empty() ? reads : received;
  }

  uint32_t append(DeviceNode node, const DeviceTraces::Work& work, Numbers reads, const Numbers& before) {
    node.ns = work.ns;
    std::set_difference(before.begin(), before.end(), reads.begin(), reads.end(), std::back_inserter(node.after));
    node.reads = std::move(reads);
    nodes_.push_back(std::move(node));
    return static_cast<uint32_t>(nodes_.size() - 1);
  }

  size_t group_of(SubAxisSet sub_axes) const {
    const Mesh& mesh = *graph_.mesh;
    return static_cast<size_t>(distinct_index(mesh, mesh.all_sub_axes() & ~sub_axes, position_));
  }

  const DeviceTraces& traces_;
  const Graph& graph_;
  int64_t device_, position_ = 0;  // -1: it is none of the mesh
  std::vector<DeviceNode> nodes_;
  std::vector<Numbers> makers_;   // by value
  Numbers last_op_, last_moves_;  // what the next op, and the next collective or message, waits for
};

std::vector<DeviceNode> DeviceTraces::of(int64_t device) const { return DeviceWalk(*this, device).run(); }

}  // namespace spmdx
