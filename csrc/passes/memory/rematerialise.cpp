// SPDX-License-Identifier: Apache-2.0
// Rematerialise: at the worst moment, what costs least time for the bytes that it holds is dropped; then the next one.
#include "passes/memory/rematerialise.h"

#include <algorithm>
#include <optional>
#include <unordered_set>
#include <utility>

#include "graph/places.h"
#include "passes/memory/drops.h"
#include "passes/memory/peak.h"
#include "passes/strategy/clock.h"
#include "rules/rule/row.h"

namespace spmdx {
namespace {

constexpr int kMostMoments = 400;  // worst moments that are looked at
constexpr int kPatience = 24;      // of them without a lower peak
constexpr size_t kMostAnew = 256;  // ops that are done again for one piece of memory
// Nodes that are looked at to see what comes of drops, and then to find out which are not needed after all.
constexpr size_t kMostNodesSeen = 10'000'000;
constexpr size_t kNodesOfTrials = 1'000'000;

// What counts of the time of ops that are done again anyway, though later: values that are made earlier for the sake of
// others are held longer. Each is tried.
constexpr double kWeights[] = {0, 0.25, 1};
// How much further down than needed is aimed, as a share of the way, where plans with a higher aim do not fit: at some
// moments nothing is left to drop but what an earlier moment could have. The way is some of the memory at least.
constexpr double kAims[] = {0, 0.1, 0.25, 0.5, 1};
constexpr int64_t kShortestWay = 4;  // as a part of what is held without a limit
constexpr int64_t kSteps = 8;        // of the way, where what is needed at once leads nowhere

// A piece of memory that could be given up, and the time that a byte of it costs.
struct Piece {
  std::vector<ValueId> values;  // that lie in it
  int64_t bytes = 0;
  double price = 0;
  bool operator<(const Piece& other) const { return price > other.price; }  // the cheapest is the top of a heap
};

// What was dropped together, and the time that it costs.
struct Group {
  std::vector<std::pair<ValueId, NodeId>> drops;
  int64_t ns = 0;
};

// What is dropped, and what comes of it.
struct Attempt {
  Drops drops;
  std::vector<Group> groups;
  int64_t peak = INT64_MAX, ns = 0;
};

class Rematerialiser {
 public:
  Rematerialiser(const Graph& graph, const CompileOptions& options)
      : graph_(graph), limit_(options.memory_limit), is_output_(graph.values.size(), false) {
    for (const Output& output : graph.outputs) is_output_[output.value] = true;
    for (const Node& node : graph.nodes) {
      may_repeat_.push_back(is_repeatable(node));
      ns_.push_back(may_repeat_.back() ? clock_ns(graph, node, options.topology) : 0);
    }
  }

  // The one that costs least of those that fit, or else holds least; the graph as it was where none holds less.
  Graph run() {
    const int64_t free = predict_peak_bytes(graph_).bytes, way = std::max(free - limit_, free / kShortestWay);
    best_.peak = free;
    if (needed_at_worst() > limit_) {  // nothing will do; what holds least is still told
      try_for(limit_, 1, INT64_MAX);
      return best_.drops.rebuild(graph_).graph;
    }
    for (const double further : kAims) {
      for (const double weight : kWeights)
        try_for(limit_ - static_cast<int64_t>(further * static_cast<double>(way)), weight, INT64_MAX);
      if (best_.peak <= limit_) break;
    }
    for (const double weight : kWeights)
      if (best_.peak > limit_) try_for(limit_, weight, way / kSteps + 1);
    if (best_.peak <= limit_) take_back();
    return best_.drops.rebuild(graph_).graph;
  }

 private:
  void try_for(int64_t aim, double weight, int64_t step) {
    weight_ = weight;
    now_tried_ = {};
    int since = 0;
    for (int moment = 0; moment < kMostMoments && since <= kPatience; ++moment, ++since) {
      if (nodes_seen_ > kMostNodesSeen) return;
      const Rebuilt rebuilt = now_tried_.drops.rebuild(graph_);
      nodes_seen_ += rebuilt.graph.nodes.size();
      const PeakBytes peak = predict_peak_bytes(rebuilt.graph);
      if (peak.bytes < now_tried_.peak) since = 0;
      now_tried_.peak = std::min(now_tried_.peak, peak.bytes);
      keep_if_better(rebuilt, peak.bytes);
      if (peak.bytes <= aim || !drop_at_worst(rebuilt, peak, std::min(peak.bytes - aim, step))) return;
    }
  }

  void keep_if_better(const Rebuilt& rebuilt, int64_t peak) {
    int64_t ns = 0;
    for (const Node& node : rebuilt.graph.nodes)
      if (node.recorded.by_plan) ns += ns_[graph_.values[rebuilt.value_of[node.output]].producer];
    const bool both_fit = peak <= limit_ && best_.peak <= limit_;
    if (both_fit ? ns < best_.ns : peak < best_.peak) best_ = {now_tried_.drops, now_tried_.groups, peak, ns};
  }

  // A custom op may do more than compute its results.
  bool is_repeatable(const Node& node) const {
    if (node.call->outputs.empty() || changes_place(graph_, node)) return false;
    return is_collective(node) || rules::find_row(node.call->op);
  }

  // ---- the worst moment ----------------------------------------------------------------------------------

  bool drop_at_worst(const Rebuilt& rebuilt, const PeakBytes& peak, int64_t excess) {
    const MemoryUseOfRun use = predict_memory(rebuilt.graph, peak);
    if (use.at == kNone) return false;
    now_ = rebuilt.for_node[use.at];
    look_around(rebuilt, use);
    std::vector<Piece> heap = pieces_of(rebuilt, use);
    std::make_heap(heap.begin(), heap.end());
    bool any = false;
    while (excess > 0 && !heap.empty()) {
      std::pop_heap(heap.begin(), heap.end());
      Piece piece = std::move(heap.back());
      heap.pop_back();
      const double before = piece.price;  // others may have been given up since
      if (!set_price(piece)) continue;
      if (piece.price > before && !heap.empty() && piece.price > heap.front().price) {
        heap.push_back(std::move(piece));
        std::push_heap(heap.begin(), heap.end());
        continue;
      }
      excess -= piece.bytes;
      any = true;
      give_up(piece);
    }
    return any;
  }

  // What is held at the worst moment and cannot be dropped then.
  int64_t needed_at_worst() {
    const Rebuilt same = now_tried_.drops.rebuild(graph_);
    const PeakBytes peak = predict_peak_bytes(same.graph);
    const MemoryUseOfRun use = predict_memory(same.graph, peak);
    if (use.at == kNone) return peak.bytes;
    now_ = same.for_node[use.at];
    look_around(same, use);
    int64_t needed = peak.bytes;
    for (const Piece& piece : pieces_of(same, use)) needed -= piece.bytes;
    return needed;
  }

  // What is read by the op that runs, what is read later, and what is computed anew later anyway.
  void look_around(const Rebuilt& rebuilt, const MemoryUseOfRun& use) {
    const Graph& graph = rebuilt.graph;
    read_now_.assign(graph.values.size(), false);
    read_later_.assign(graph.values.size(), false);
    is_there_.assign(graph_.values.size(), false);
    comes_anew_.assign(graph_.values.size(), false);
    for (NodeId id = use.at; id < graph.nodes.size(); ++id) {
      std::vector<bool>& read = rebuilt.for_node[id] == now_ ? read_now_ : read_later_;
      for (const ValueId value : graph.nodes[id].inputs) read[value] = true;
      for (ValueId r = 0; id > use.at && r < graph.nodes[id].call->outputs.size(); ++r)
        if (graph.nodes[id].recorded.by_plan) comes_anew_[rebuilt.value_of[graph.nodes[id].output + r]] = true;
    }
    for (const Held& held : use.held)
      for (const ValueId value : held.values)
        if (read_later_[value]) is_there_[rebuilt.value_of[value]] = true;
  }

  std::vector<Piece> pieces_of(const Rebuilt& rebuilt, const MemoryUseOfRun& use) const {
    std::vector<Piece> pieces;
    for (const Held& held : use.held) {
      Piece piece{.values = {}, .bytes = held.bytes, .price = 0};
      const bool all = std::ranges::all_of(held.values, [&](ValueId value) {
        const ValueId of = rebuilt.value_of[value];
        piece.values.push_back(of);
        return !read_now_[value] && !is_output_[of] && graph_.values[of].producer != kNone;
      });
      if (all && !piece.values.empty() && set_price(piece)) pieces.push_back(std::move(piece));
    }
    return pieces;
  }

  // ---- what it takes -------------------------------------------------------------------------------------

  // False: it cannot be computed anew.
  bool set_price(Piece& piece) const {
    const auto whole = done_again(piece.values, false), more = done_again(piece.values, true);
    if (!whole || !more) return false;
    const auto time = [&](const std::vector<NodeId>& nodes) {
      int64_t ns = 0;
      for (const NodeId id : nodes) ns += ns_[id];
      return static_cast<double>(ns);
    };
    piece.price = (weight_ * time(*whole) + (1 - weight_) * time(*more)) / static_cast<double>(piece.bytes);
    return true;
  }

  // The ops to be done again for these values; `more`: beside those that are anyway. Nothing: some cannot be.
  std::optional<std::vector<NodeId>> done_again(const std::vector<ValueId>& values, bool more) const {
    std::vector<NodeId> found;
    std::unordered_set<NodeId> seen;
    std::vector<ValueId> open = values;
    for (size_t i = 0; i < open.size(); ++i) {
      const NodeId id = graph_.values[open[i]].producer;
      if (!seen.insert(id).second) continue;
      if (!may_repeat_[id] || found.size() == kMostAnew) return std::nullopt;
      found.push_back(id);
      for (const ValueId value : graph_.nodes[id].inputs)
        if (!is_at_hand(value) && !(more && comes_anew_[value])) open.push_back(value);
    }
    nodes_seen_ += found.size();
    return found;
  }
  bool is_at_hand(ValueId value) const {
    return graph_.values[value].producer == kNone || is_output_[value] || is_there_[value];
  }

  void give_up(const Piece& piece) {
    Group group;
    const auto anew = done_again(piece.values, true);
    for (const NodeId id : *anew) {
      group.ns += ns_[id];
      for (ValueId r = 0; r < graph_.nodes[id].call->outputs.size(); ++r)
        if (const ValueId value = graph_.nodes[id].output + r; !is_output_[value] && !is_there_[value])
          drop(value, group);
    }
    for (const ValueId value : piece.values) drop(value, group);
    now_tried_.groups.push_back(std::move(group));
  }

  void drop(ValueId value, Group& group) {
    is_there_[value] = false;
    comes_anew_[value] = true;
    if (now_tried_.drops.contain(value, now_)) return;
    now_tried_.drops.add(value, now_);
    group.drops.emplace_back(value, now_);
  }

  // ---- what was too much ---------------------------------------------------------------------------------

  // Of what was dropped for an earlier moment, later drops may have made some needless. The most expensive first.
  void take_back() {
    std::ranges::stable_sort(best_.groups, std::greater(), &Group::ns);
    size_t nodes = 0;
    for (const Group& group : best_.groups) {
      if ((nodes += graph_.nodes.size()) > kNodesOfTrials) return;
      for (const auto& [value, after] : group.drops) best_.drops.remove(value, after);
      if (predict_peak_bytes(best_.drops.rebuild(graph_).graph).bytes <= limit_) continue;
      for (const auto& [value, after] : group.drops) best_.drops.add(value, after);
    }
  }

  const Graph& graph_;
  const int64_t limit_;
  std::vector<bool> is_output_;   // by value
  std::vector<bool> may_repeat_;  // by node
  std::vector<int64_t> ns_;       // by node
  double weight_ = 0;
  Attempt best_, now_tried_;
  mutable size_t nodes_seen_ = 0;
  NodeId now_ = 0;                           // what runs at the worst moment, or is served by it
  std::vector<bool> read_now_, read_later_;  // by value of the rebuilt graph
  std::vector<bool> is_there_, comes_anew_;  // by value: is held for later; will be computed after this moment
};

}  // namespace

void rematerialise(Graph& graph, const CompileOptions& options) {
  if (!options.recomputes || predict_peak_bytes(graph).bytes <= options.memory_limit) return;
  graph = Rematerialiser(graph, options).run();
}

}  // namespace spmdx
