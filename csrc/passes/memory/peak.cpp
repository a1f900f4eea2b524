// SPDX-License-Identifier: Apache-2.0
// Peak: a run is simulated, value by value, on the devices of each stage.
#include "passes/memory/peak.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>

#include "passes/memory/memory_use.h"
#include "sharding/shards.h"

namespace spmdx {
namespace {

// Simulates a run: which memory each value has, and which of it is alive. Values share blocks as kernels' views do.
class Liveness {
 public:
  // Of the devices with this coordinate along the stage axis, where there is one, or of their hosts.
  Liveness(const Graph& graph, int64_t coordinate, bool hosts = false)
      : graph_(graph),
        coordinate_(coordinate),
        hosts_(hosts),
        last_use_(graph.values.size(), 0),
        block_of_(graph.values.size(), kNone),
        alive_(graph.values.size(), false),
        row_major_(graph.values.size(), true) {
    for (NodeId id = 0; id < graph.nodes.size(); ++id) {
      const Node& node = graph.nodes[id];
      for (size_t r = 0; r < node.call->outputs.size(); ++r) last_use_[node.output + r] = id;
      for (ValueId input : node.inputs) last_use_[input] = id;
    }
    for (const Output& output : graph.outputs) last_use_[output.value] = kNone;
    std::vector<bool> spare(graph.inputs.size(), false);
    for (const Output& output : graph.outputs)
      if (output.donates) spare[output.tied] = true;
    for (size_t i = 0; i < graph.inputs.size(); ++i)
      if (!spare[i]) last_use_[graph.inputs[i].value] = kNone;  // the caller keeps it
  }

  // `visit`: called with each node once it has run, and the most that was held meanwhile; kNone: what came in.
  template <class Visit>
  void run(const Visit& visit) {
    for (const Input& input : graph_.inputs) make(input.value);
    note(kNone, visit);
    for (NodeId id = 0; id < graph_.nodes.size(); ++id) {
      const Node& node = graph_.nodes[id];
      if (is_collective(node))
        run_collective(id);
      else
        run_op(id);
      note(id, visit);
    }
    for (const Output& output : graph_.outputs) compact(output.value);
    note(kNone, visit);
  }

  int64_t peak() const { return peak_; }

  // From here on, the blocks that are alive when so much is held for the first time are kept.
  void watch_for(int64_t bytes) { watched_ = bytes; }
  std::vector<Held> held() && {
    std::stable_sort(held_.begin(), held_.end(), [](const Held& a, const Held& b) { return a.bytes > b.bytes; });
    return std::move(held_);
  }

 private:
  struct Block {
    int64_t bytes = 0;
    int64_t values = 0;  // live values that lie in it
    ValueId made_for = 0;
  };

  template <class Visit>
  void note(NodeId id, const Visit& visit) {
    visit(id, std::max(most_, live_));
    most_ = live_;
  }

  bool is_here(const Value& value) const {
    if ((value.sharding && value.sharding->place.host) != hosts_) return false;
    if (!value.sharding || value.sharding->place.whole()) return true;
    const Place& place = value.sharding->place;
    return place.stage % value.sharding->mesh->axes()[place.axis].size == coordinate_;
  }

  int64_t local_bytes(ValueId id) const {
    const Value& value = graph_.values[id];
    if (value.type.dtype == DType::unknown || !is_here(value)) return 0;
    return bytes_on_a_device(value.type, value.sharding);
  }

  int64_t local_bytes(const std::vector<ValueId>& values) const {
    int64_t bytes = 0;
    for (const ValueId value : values) bytes += local_bytes(value);
    return bytes;
  }

  void make(ValueId value) {
    block_of_[value] = static_cast<uint32_t>(blocks_.size());
    alive_[value] = true;
    blocks_.push_back({local_bytes(value), 1, value});
    live_ += blocks_.back().bytes;
    note_most();
  }

  void note_most() {
    most_ = std::max(most_, live_);
    peak_ = std::max(peak_, live_);
    if (live_ == watched_ && held_.empty()) note_held();
  }

  void note_held() {
    std::vector<uint32_t> place(blocks_.size(), kNone);
    for (size_t b = 0; b < blocks_.size(); ++b) {
      if (!blocks_[b].values || !blocks_[b].bytes) continue;
      place[b] = static_cast<uint32_t>(held_.size());
      held_.push_back({blocks_[b].made_for, blocks_[b].bytes});
    }
    for (ValueId value = 0; value < alive_.size(); ++value)
      if (alive_[value] && place[block_of_[value]] != kNone) held_[place[block_of_[value]]].values.push_back(value);
  }

  void contribution(ValueId value, ValueId with) {
    block_of_[value] = block_of_[with];
    alive_[value] = true;
    ++blocks_[block_of_[value]].values;
  }

  void drop(ValueId value) {
    Block& block = blocks_[block_of_[value]];
    alive_[value] = false;
    if (--block.values == 0) live_ -= block.bytes;
  }

  // The operands, each once, that nobody reads after this node.
  void drop_dead(NodeId id, std::vector<ValueId> values) {
    std::sort(values.begin(), values.end());
    values.erase(std::unique(values.begin(), values.end()), values.end());
    for (ValueId value : values)
      if (last_use_[value] == id) drop(value);
  }

  // Operand by operand. A slice is a view; everything else arrives in new memory.
  void run_collective(NodeId id) {
    const Node& node = graph_.nodes[id];
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId result = node.output + static_cast<ValueId>(i);
      if (collective_kind(node) == Collective::slice) {
        contribution(result, node.inputs[i]);
        row_major_[result] = false;
        note_strides_of_part(result, node.inputs[i]);
      } else {
        make(result);
      }
      const bool again = std::count(node.inputs.begin() + static_cast<long>(i) + 1, node.inputs.end(), node.inputs[i]);
      if (!again) drop_dead(id, {node.inputs[i]});
      drop_dead(id, {result});
    }
  }

  // Whether the executor hands the first operand's memory to the result.
  bool takes_over(NodeId id) const {
    const Node& node = graph_.nodes[id];
    const ValueId first = node.inputs[0];
    const Block& block = blocks_[block_of_[first]];
    if (last_use_[first] != id) return false;
    const std::vector<ValueId> parts = dying_parts(id);
    return block.values == 1 + std::ssize(parts) && 2 * local_bytes(parts) <= block.bytes &&
           block.bytes == local_bytes(first) && graph_.values[first].sharding == graph_.values[node.output].sharding &&
           std::count(node.inputs.begin(), node.inputs.end(), first) == 1;
  }

  // Other operands that lie in the first one's memory and that nobody reads later: they are copied before it is
  // overwritten.
  std::vector<ValueId> dying_parts(NodeId id) const {
    const Node& node = graph_.nodes[id];
    std::vector<ValueId> parts;
    for (size_t i = 1; i < node.inputs.size(); ++i) {
      const ValueId input = node.inputs[i];
      const bool is_part = input != node.inputs[0] && block_of_[input] == block_of_[node.inputs[0]];
      if (is_part && last_use_[input] == id) parts.push_back(input);
    }
    return parts;
  }

  void copy_for_a_moment(const std::vector<ValueId>& values) {
    const int64_t bytes = local_bytes(values);
    live_ += bytes;
    note_most();
    live_ -= bytes;
  }

  void run_op(NodeId id) {
    const Node& node = graph_.nodes[id];
    const MemoryUse use = memory_use(*node.call);
    const bool overwrites = use == MemoryUse::in_place && takes_over(id);
    const bool shares = is_view(use) || (use == MemoryUse::reshape && reshapes_in_place(id)) || overwrites;
    if (overwrites) copy_for_a_moment(dying_parts(id));
    std::vector<ValueId> touched = node.inputs;
    for (size_t r = 0; r < node.call->outputs.size(); ++r) {
      const ValueId result = node.output + static_cast<ValueId>(r);
      touched.push_back(result);
      if (shares)
        contribution(result, node.inputs[0]);
      else
        make(result);
      row_major_[result] = lies_in_row_major_order(node, use);
    }
    drop_dead(id, std::move(touched));
  }

  Shape local_shape(ValueId id) const {
    const Value& value = graph_.values[id];
    Shape shape = value.type.shape;
    for (size_t d = 0; value.sharding && d < shape.size(); ++d)
      shape[d] = local_range(*value.sharding->mesh, value.sharding->dims[d], shape[d], 0).extent;
    return shape;
  }

  void note_strides_of_part(ValueId part, ValueId of) {
    if (row_major_[of])
      strides_[part] = row_major_strides(local_shape(of));
    else if (const auto strides = strides_.find(of); strides != strides_.end())
      strides_[part] = Shape(strides->second);
  }

  static Shape row_major_strides(const Shape& shape) {
    Shape strides(shape.size(), 1);
    for (size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * shape[d];
    return strides;
  }

  // Of a part of a row-major tensor: whether the dims that the op merges lie as one would.
  bool reshapes_in_place(NodeId id) {
    const Node& node = graph_.nodes[id];
    if (row_major_[node.inputs[0]]) return true;
    const auto from = strides_.find(node.inputs[0]);
    if (from == strides_.end()) return false;
    auto to = strides_as(local_shape(node.inputs[0]), from->second, local_shape(node.output));
    if (!to) return false;
    strides_[node.output] = std::move(*to);
    return true;
  }

  // The strides of a view of this shape; nothing: there is none.
  static std::optional<Shape> strides_as(const Shape& shape, const Shape& strides, const Shape& to) {
    if (numel(shape) == 0 || numel(shape) != numel(to)) return std::nullopt;
    Shape found(to.size(), 1);
    size_t left = to.size();    // dims of the view without a stride
    int64_t base = 1, run = 1;  // the innermost stride of dims that lie as one, and their elements
    for (size_t d = shape.size(); d-- > 0;) {
      if (run == 1) base = strides[d];
      run *= shape[d];
      if (d > 0 && (shape[d - 1] == 1 || strides[d - 1] == run * base)) continue;
      int64_t covered = 1;
      while (left > 0 && (covered < run || to[left - 1] == 1)) {
        found[left - 1] = base * covered;
        covered *= to[--left];
      }
      if (covered != run) return std::nullopt;
      run = 1;
    }
    return found;
  }

  bool lies_in_row_major_order(const Node& node, MemoryUse use) const {
    if (node.inputs.empty()) return true;
    if (use == MemoryUse::reshape) return !strides_.contains(node.output);
    const TensorType &in = node.call->inputs[0], &out = node.call->outputs[0];
    if (is_view(use)) return use == MemoryUse::part && starts_at_a_major_dim(node);
    return in.shape != out.shape || row_major_[node.inputs[0]];  // element by element: laid out as its operand
  }

  static bool is_view(MemoryUse use) { return use == MemoryUse::view || use == MemoryUse::part; }

  // Whether a part of one dim leaves no gaps: where it is the first dim that is more than 1.
  bool starts_at_a_major_dim(const Node& node) const {
    if (!row_major_[node.inputs[0]]) return false;
    const Shape& shape = node.call->inputs[0].shape;
    const auto* dim = std::get_if<int64_t>(&node.call->args[1]);
    return dim && std::all_of(shape.begin(), shape.begin() + *dim, [](int64_t size) { return size == 1; });
  }

  // An output that is a small part of its block is copied out of it.
  void compact(ValueId value) {
    if (blocks_[block_of_[value]].bytes <= local_bytes(value)) return;
    const uint32_t old = block_of_[value];
    make(value);
    if (--blocks_[old].values == 0) live_ -= blocks_[old].bytes;
  }

  const Graph& graph_;
  const int64_t coordinate_;
  const bool hosts_;
  std::vector<NodeId> last_use_;
  std::vector<uint32_t> block_of_;
  std::vector<bool> alive_;
  std::unordered_map<ValueId, Shape> strides_;  // of parts of row-major tensors
  std::vector<bool> row_major_;
  std::vector<Block> blocks_;
  int64_t live_ = 0, peak_ = 0, most_ = 0;  // now, of the run, and since the last node
  int64_t watched_ = -1;
  std::vector<Held> held_;
};

// How many kinds of devices there are: one for each stage.
int64_t coordinates_of(const Graph& graph) {
  for (const Value& value : graph.values)
    if (value.sharding && !value.sharding->place.whole())
      return value.sharding->mesh->axes()[value.sharding->place.axis].size;
  return 1;
}

// Of devices, or of their hosts.
PeakBytes peak_of(const Graph& graph, bool hosts) {
  PeakBytes most;
  for (int64_t coordinate = 0, all = coordinates_of(graph); coordinate < all; ++coordinate) {
    Liveness memory(graph, coordinate, hosts);
    memory.run([](NodeId, int64_t) {});
    if (memory.peak() > most.bytes) most = {memory.peak(), coordinate};
  }
  return most;
}

}  // namespace

PeakBytes predict_peak_bytes(const Graph& graph) { return peak_of(graph, false); }

int64_t predict_host_bytes(const Graph& graph) {
  const bool some = std::ranges::any_of(
      graph.values, [](const Value& value) { return value.sharding && value.sharding->place.host; });
  return some ? peak_of(graph, true).bytes : 0;  // most plans have none, and a run is simulated
}

MemoryUseOfRun predict_memory(const Graph& graph, PeakBytes peak) {
  MemoryUseOfRun all;
  all.by_node.reserve(graph.nodes.size());
  Liveness devices(graph, peak.coordinate);
  devices.watch_for(peak.bytes);
  bool found = false;
  devices.run([&](NodeId id, int64_t bytes) {
    if (bytes == peak.bytes && !std::exchange(found, true)) all.at = id;
    if (id != kNone) all.by_node.push_back(bytes);
  });
  all.held = std::move(devices).held();
  return all;
}

}  // namespace spmdx
