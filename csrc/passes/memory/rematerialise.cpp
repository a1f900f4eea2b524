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

constexpr int kMostMoments = 400;             // worst moments that are looked at
constexpr int kPatience = 24;                 // of them without a lower peak
constexpr size_t kMostAnew = 256;             // ops that are done again for one piece of memory
constexpr size_t kNodesOfTrials = 4'000'000;  // rebuilt to find out what need not be dropped after all

// What counts of the time of ops that are done again anyway, though later: values that are made earlier for the sake of
// others are held longer. Each is tried.
constexpr double kWeights[] = {0, 0.25, 1};
// How much further down than needed is aimed, as a share of the way, where plans with a higher aim do not fit: at some
// moments nothing is left to drop but what an earlier moment could have.
constexpr double kAims[] = {0, 0.1, 0.25, 0.5, 1};

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

class Rematerialiser {
 public:
  Rematerialiser(const Graph& graph, const CompileOptions& options)
      : graph_(graph),
        limit_(options.memory_limit),
        topology_(options.topology),
        is_output_(graph.values.size(), false) {
    for (const Output& output : graph.outputs) is_output_[output.value] = true;
    for (const Node& node : graph.nodes) {
      may_repeat_.push_back(is_repeatable(node));
      ns_.push_back(may_repeat_.back() ? clock_ns(graph, node, options.topology) : 0);
    }
  }

  // The one that costs least of those that fit, or else holds least; the graph as it was where none holds less.
  Graph run() {
    const int64_t free = predict_peak_bytes(graph_).bytes;
    Outcome best{.peak = free, .ns = 0, .graph = graph_};
    for (const double further : kAims) {
      aim_ = limit_ - static_cast<int64_t>(further * static_cast<double>(free - limit_));
      for (const double weight : kWeights) {
        Outcome found = with_weight(weight);
        const bool fits = found.peak <= limit_;
        if (fits && best.peak <= limit_ ? found.ns < best.ns : found.peak < best.peak) best = std::move(found);
      }
      if (best.peak <= limit_) break;
    }
    return std::move(best.graph);
  }

 private:
  struct Outcome {
    int64_t peak = 0, ns = 0;
    Graph graph;
  };

  Outcome with_weight(double weight) {
    weight_ = weight;
    drops_ = {};
    groups_.clear();
    lowest_ = {};
    int64_t lowest = INT64_MAX;
    int since = 0;
    for (int moment = 0; moment < kMostMoments && since <= kPatience; ++moment, ++since) {
      const Rebuilt rebuilt = drops_.rebuild(graph_);
      const PeakBytes peak = predict_peak_bytes(rebuilt.graph);
      if (peak.bytes < lowest) {
        lowest = peak.bytes;
        lowest_ = {drops_, groups_};
        since = 0;
      }
      if (peak.bytes <= aim_ || !drop_at_worst(rebuilt, peak)) break;
    }
    std::tie(drops_, groups_) = std::move(lowest_);
    if (lowest <= limit_) take_back();
    Outcome found{.peak = lowest, .ns = 0, .graph = drops_.rebuild(graph_).graph};
    for (const Node& node : found.graph.nodes)
      if (node.recorded.by_plan) found.ns += clock_ns(found.graph, node, topology_);
    return found;
  }

  // A custom op may do more than compute its results.
  bool is_repeatable(const Node& node) const {
    if (node.call->outputs.empty() || changes_place(graph_, node)) return false;
    return is_collective(node) || rules::find_row(node.call->op);
  }

  // ---- the worst moment ----------------------------------------------------------------------------------

  bool drop_at_worst(const Rebuilt& rebuilt, const PeakBytes& peak) {
    const MemoryUseOfRun use = predict_memory(rebuilt.graph, peak);
    if (use.at == kNone) return false;
    now_ = rebuilt.for_node[use.at];
    look_around(rebuilt, use);
    std::vector<Piece> heap = pieces_of(rebuilt, use);
    std::make_heap(heap.begin(), heap.end());
    int64_t excess = peak.bytes - aim_;
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
    groups_.push_back(std::move(group));
  }

  void drop(ValueId value, Group& group) {
    is_there_[value] = false;
    comes_anew_[value] = true;
    if (drops_.contain(value, now_)) return;
    drops_.add(value, now_);
    group.drops.emplace_back(value, now_);
  }

  // ---- what was too much ---------------------------------------------------------------------------------

  // Of what was dropped for an earlier moment, later drops may have made some needless. The most expensive first.
  void take_back() {
    std::ranges::stable_sort(groups_, std::greater(), &Group::ns);
    size_t nodes = 0;
    for (const Group& group : groups_) {
      if ((nodes += graph_.nodes.size()) > kNodesOfTrials) return;
      for (const auto& [value, after] : group.drops) drops_.remove(value, after);
      if (predict_peak_bytes(drops_.rebuild(graph_).graph).bytes <= limit_) continue;
      for (const auto& [value, after] : group.drops) drops_.add(value, after);
    }
  }

  const Graph& graph_;
  const int64_t limit_;
  const Topology& topology_;
  std::vector<bool> is_output_;   // by value
  std::vector<bool> may_repeat_;  // by node
  std::vector<int64_t> ns_;       // by node
  double weight_ = 0;
  int64_t aim_ = 0;
  Drops drops_;
  std::vector<Group> groups_;
  std::pair<Drops, std::vector<Group>> lowest_;
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
