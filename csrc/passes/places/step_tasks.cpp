// SPDX-License-Identifier: Apache-2.0
// StepTasks: pairs of nodes join round by round, none of which can close a circle.
#include "passes/places/step_tasks.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "sharding/shards.h"

namespace spmdx {
namespace {

constexpr size_t kMostSegments = 192;  // beyond, the search for a placement takes seconds

class Joiner {
 public:
  Joiner(const Graph& graph, const std::vector<std::vector<int64_t>>& ns, std::vector<int32_t> sum)
      : graph_(graph), ns_(ns), root_(ns.size()), sum_(std::move(sum)) {
    std::iota(root_.begin(), root_.end(), 0);
    if (!sum_.empty() && !terms_read_sums()) join_sums();
  }

  // Of every node, the first one of those that it runs with. Where there are too many groups, longer ones join, then
  // longer ones wait for others, and at last all that one device alone runs is joined with others.
  std::vector<NodeId> run(int64_t least_ns) {
    light_ns_ = least_ns;
    join_all(least_ns, false);
    for (; too_many() && least_ns < kAny; join_all(least_ns, false)) least_ns = doubled(least_ns);
    for (; too_many() && light_ns_ < kAny; join_all(kAny, false)) light_ns_ = doubled(light_ns_);
    if (too_many()) join_all(kAny, true);
    return root_;
  }

 private:
  static constexpr int64_t kAny = kNever / 2;
  static int64_t doubled(int64_t ns) { return std::min(kAny, 2 * std::max<int64_t>(ns, 1)); }
  bool too_many() const { return std::set<NodeId>(root_.begin(), root_.end()).size() > kMostSegments; }

  void join_all(int64_t least_ns, bool mixes) {
    while (round(least_ns, mixes)) {
    }
  }

  // What is added up may be made of a sum, where gradients are computed of gradients: then parts of one run apart.
  bool terms_read_sums() const {
    std::vector<bool> behind(root_.size(), false);  // of nodes that are in no sum
    for (NodeId id = 0; id < root_.size(); ++id)
      for (const ValueId value : graph_.nodes[id].inputs) {
        const NodeId made = graph_.values[value].producer;
        if (made == kNone || (sum_[made] < 0 && !behind[made])) continue;
        if (sum_[id] < 0)
          behind[id] = true;
        else if (sum_[made] != sum_[id])
          return true;
      }
    return false;
  }

  void join_sums() {
    std::map<int32_t, NodeId> first;
    for (NodeId id = 0; id < root_.size(); ++id) {
      if (sum_[id] < 0) continue;
      root_[id] = first.try_emplace(sum_[id], id).first->second;
      if (root_[id] != id) add_ns(id, root_[id]);
    }
  }

  int64_t best(NodeId group) const { return *std::ranges::min_element(ns_[group]); }

  // Whether both may run on the same devices, and on one at all; what takes no time goes along with anything.
  bool may_join(NodeId a, NodeId b, int64_t least_ns, bool mixes) const {
    if (std::min(best(a), best(b)) >= least_ns || (!sum_.empty() && sum_[a] != sum_[b])) return false;
    bool any = false, same = true;
    for (size_t d = 0; d < ns_[a].size(); ++d) {
      any |= ns_[a][d] != kNever && ns_[b][d] != kNever;
      same &= (ns_[a][d] == kNever) == (ns_[b][d] == kNever);
    }
    return any && (same || mixes || best(a) == 0 || best(b) == 0);
  }

  void add_ns(NodeId from, NodeId into) {
    for (size_t d = 0; d < ns_[into].size(); ++d) {
      int64_t& total = ns_[into][d];
      total = total == kNever || ns_[from][d] == kNever ? kNever : std::min(kNever / 2, total + ns_[from][d]);
    }
  }
  void join(NodeId from, NodeId into) {
    add_ns(from, into);
    joined_[from] = into;
  }

  // Of a group that one other alone reads, no other way leads there; nor to one that reads one other alone. What takes
  // long does not join a reader that waits for others as well, as sums of gradients do: it would wait for these, too.
  bool round(int64_t least_ns, bool mixes) {
    std::map<NodeId, std::set<NodeId>> readers, read;
    for (NodeId id = 0; id < root_.size(); ++id)
      for (const ValueId value : graph_.nodes[id].inputs)
        if (const NodeId made = graph_.values[value].producer; made != kNone && root_[made] != root_[id]) {
          readers[root_[made]].insert(root_[id]);
          read[root_[id]].insert(root_[made]);
        }
    joined_.clear();
    std::set<NodeId> busy;
    const auto attempt = [&](NodeId a, NodeId b) {
      if (busy.contains(a) || busy.contains(b) || !may_join(a, b, least_ns, mixes)) return;
      busy.insert({a, b});
      join(std::max(a, b), std::min(a, b));
    };
    for (const auto& [group, others] : readers)
      if (others.size() == 1 && (best(group) < light_ns_ || read[*others.begin()].size() == 1))
        attempt(group, *others.begin());
    for (const auto& [group, others] : read)
      if (others.size() == 1) attempt(group, *others.begin());
    for (NodeId& root : root_)
      if (const auto found = joined_.find(root); found != joined_.end()) root = found->second;
    return !joined_.empty();
  }

  const Graph& graph_;
  std::vector<std::vector<int64_t>> ns_;  // of groups, at their roots
  std::vector<NodeId> root_;              // by node
  const std::vector<int32_t> sum_;        // by node: the sum that it is a part of; negative: of none
  std::map<NodeId, NodeId> joined_;       // of this round
  int64_t light_ns_ = 0;                  // what takes less may wait for others
};

// Groups in an order in which each comes behind those that it reads.
std::vector<NodeId> in_order(const Graph& graph, const std::vector<NodeId>& root) {
  std::map<NodeId, std::set<NodeId>> readers;
  std::map<NodeId, size_t> missing;
  for (NodeId id = 0; id < root.size(); ++id) {
    missing.try_emplace(root[id], 0);
    for (const ValueId value : graph.nodes[id].inputs)
      if (const NodeId made = graph.values[value].producer; made != kNone && root[made] != root[id])
        missing[root[id]] += readers[root[made]].insert(root[id]).second;
  }
  std::set<NodeId> ready;
  for (const auto& [group, count] : missing)
    if (count == 0) ready.insert(group);
  std::vector<NodeId> order;
  while (!ready.empty()) {
    order.push_back(*ready.begin());
    ready.erase(ready.begin());
    for (const NodeId reader : readers[order.back()])
      if (--missing[reader] == 0) ready.insert(reader);
  }
  return order;
}

class Tasks {
 public:
  Tasks(const Graph& graph, size_t devices, const SumsOfTasks& sums)
      : graph_(graph), devices_(devices), is_sent_free_(sums.is_sent_free) {}

  StepTasks run(const std::vector<std::vector<int64_t>>& ns, const std::vector<NodeId>& root,
                const std::vector<int32_t>& input_homes, const std::vector<int32_t>& output_homes) {
    for (size_t i = 0; i < graph_.inputs.size(); ++i)
      if (input_homes[i] >= 0) made_by_[graph_.inputs[i].value] = at(input_homes[i], bytes_of(graph_.inputs[i]));
    std::map<NodeId, uint32_t> task;
    for (const NodeId group : in_order(graph_, root)) task[group] = add(Task{std::vector<int64_t>(devices_, 0), {}, 0});
    for (NodeId id = 0; id < root.size(); ++id) {
      made_.of_node.push_back(task[root[id]]);
      for (size_t r = 0; r < graph_.nodes[id].call->outputs.size(); ++r)
        made_by_[graph_.nodes[id].output + static_cast<ValueId>(r)] = made_.of_node.back();
    }
    for (NodeId id = 0; id < root.size(); ++id) add_node(id, ns[id]);
    for (size_t i = 0; i < graph_.outputs.size(); ++i) {
      const ValueId value = graph_.outputs[i].value;
      if (const auto made = made_by_.find(value); made != made_by_.end() && !graph_.outputs[i].donates)
        made_.tasks[made->second].bytes += bytes_of(value);
      if (output_homes[i] >= 0) read(at(output_homes[i]), value);
    }
    add_shared();
    for (uint32_t t = 0; t < reads_.size(); ++t)
      for (const auto& [producer, bytes] : reads_[t]) made_.tasks[t].reads.push_back({producer, bytes});
    return std::move(made_);
  }

 private:
  uint32_t add(Task task) {
    made_.tasks.push_back(std::move(task));
    reads_.emplace_back();
    seen_.emplace_back();
    return static_cast<uint32_t>(made_.tasks.size() - 1);
  }

  uint32_t at(int32_t device, int64_t bytes = 0) {
    std::vector<int64_t> ns(devices_, kNever);
    ns[static_cast<size_t>(device)] = 0;
    return add(Task{std::move(ns), {}, bytes});
  }

  int64_t bytes_of(ValueId value) const {
    return bytes_on_a_device(graph_.values[value].type, graph_.values[value].sharding);
  }
  // Of what lies there already; in the memory of hosts it takes none of the device's.
  int64_t bytes_of(const Input& input) const {
    return input.physical && input.physical->place.host ? 0 : bytes_of(input.value);
  }

  void add_node(NodeId id, const std::vector<int64_t>& ns) {
    const uint32_t at = made_.of_node[id];
    Task& task = made_.tasks[at];
    for (size_t d = 0; d < devices_; ++d)
      task.ns[d] = task.ns[d] == kNever || ns[d] == kNever ? kNever : std::min(kNever / 2, task.ns[d] + ns[d]);
    const bool free = !is_sent_free_.empty() && is_sent_free_[id];
    for (const ValueId value : graph_.nodes[id].inputs) read(at, value, free);
  }

  // What lies everywhere takes memory where it is read, once for all that read it there.
  void add_shared() {
    std::map<std::set<uint32_t>, int64_t> bytes;
    for (const auto& [value, tasks] : readers_) bytes[tasks] += bytes_of(value);
    for (const auto& [tasks, sum] : bytes) {
      if (tasks.size() == 1) made_.tasks[*tasks.begin()].bytes += sum;
      if (tasks.size() == 1 || sum == 0) continue;
      for (const uint32_t task : tasks) made_.tasks[task].shared.push_back(static_cast<uint32_t>(made_.shared.size()));
      made_.shared.push_back(sum);
    }
  }

  void read(uint32_t task, ValueId value, bool free = false) {
    if (value == kNone || !seen_[task].insert(value).second) return;
    const auto made = made_by_.find(value);
    if (made == made_by_.end())
      readers_[value].insert(task);
    else if (made->second != task)
      reads_[task][made->second] += free ? 0 : bytes_of(value);
  }

  const Graph& graph_;
  const size_t devices_;
  const std::vector<bool>& is_sent_free_;
  StepTasks made_;
  std::map<ValueId, uint32_t> made_by_;             // task that has a value; not there: all devices have it
  std::vector<std::map<uint32_t, int64_t>> reads_;  // by task: bytes of each other one
  std::vector<std::set<ValueId>> seen_;             // by task
  std::map<ValueId, std::set<uint32_t>> readers_;   // tasks, of values that all devices have
};

}  // namespace

StepTasks tasks_of(const Graph& graph, size_t devices, const std::vector<std::vector<int64_t>>& ns,
                   const std::vector<int32_t>& input_homes, const std::vector<int32_t>& output_homes, int64_t least_ns,
                   const SumsOfTasks& sums) {
  const std::vector<NodeId> root = Joiner(graph, ns, sums.of_node).run(least_ns);
  return Tasks(graph, devices, sums).run(ns, root, input_homes, output_homes);
}

}  // namespace spmdx
