// SPDX-License-Identifier: Apache-2.0
// Units: instructions between collectives, by how often what leads to them changes between shards, or leaves segments.
#include "runtime/segments/units.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <tuple>
#include <unordered_map>

#include "graph/places.h"
#include "passes/report/flops.h"
#include "sharding/shards.h"

namespace spmdx {
namespace {

// Instructions are moved among so many nodes, that what they hold is not held for long, and compilers end.
constexpr uint32_t kMostNodes = 256;
// Optimizers that update tensors in bulk call one op for all of them, then the next one: so many nodes of that kind are
// looked at, and what has to do with one tensor becomes one segment with some of the others.
constexpr uint32_t kMostInBulk = 8192;
constexpr uint32_t kLeastInBulk = 8;  // calls of one op in a row
// An op of so many FLOPs takes longer than the call of a kernel, and is a segment by itself.
constexpr double kLeastFlops = 65536;

// What the instructions of a segment have in common: the devices that they are of.
using Devices = std::tuple<SubAxisSet, int, int64_t, uint32_t>;

class Window {
 public:
  Window(const Graph& graph, const Program& program, const Compilers& compilers, const Numbers& numbers)
      : graph_(graph), program_(program), compilers_(compilers), numbers_(numbers) {}

  void add(uint32_t index) {
    const Instruction& instruction = program_.instructions[index];
    Place place{index, takes(instruction), devices_of(instruction), 0, {}};
    place.depth = least_depth(place);
    for (uint32_t i = 0; i < instruction.num_operands; ++i) {
      const auto made = made_by_.find(program_.operands[instruction.first_operand + i].slot);
      if (made == made_by_.end()) continue;
      const Place& before = places_[made->second];
      place.depth = std::max(place.depth, before.depth + !may_join(before, place));
      place.reads.push_back(made->second);
    }
    for (uint32_t r = 0; r < instruction.num_results; ++r)
      if (const uint32_t slot = program_.results[instruction.first_result + r]; slot != kNone)
        made_by_[slot] = places_.size();
    places_.push_back(std::move(place));
  }

  // Those of the window, after which it is empty.
  void end(std::vector<Unit>& units) {
    delay();
    const std::vector<uint32_t> packs = packs_of_places();
    std::map<std::tuple<uint32_t, Devices, uint32_t>, size_t> segments;
    std::vector<std::pair<uint32_t, Unit>> found;
    for (size_t p = 0; p < places_.size(); ++p) {
      const Place& place = places_[p];
      size_t unit = found.size();
      if (place.taken) unit = segments.try_emplace({place.depth, place.devices, packs[p]}, unit).first->second;
      if (unit == found.size()) found.push_back({place.depth, Unit{}});
      found[unit].second.instructions.push_back(place.instruction);
      found[unit].second.is_segment = found[unit].second.instructions.size() > 1 || (place.taken && is_large(place));
    }
    std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    for (auto& [depth, unit] : found) units.push_back(std::move(unit));
    places_.clear();
    made_by_.clear();
  }

 private:
  struct Place {
    uint32_t instruction = 0;
    bool taken = false;
    Devices devices;
    uint32_t depth = 0;         // how many units lead to it, at least
    std::vector<size_t> reads;  // what of the window it reads
  };

  static bool may_join(const Place& a, const Place& b) { return a.taken && b.taken && a.devices == b.devices; }

  // Of what may be one segment: numbers of packs of at most kMostNodes. What is connected is in one, if it can be; of
  // more, each pack reads earlier ones alone.
  std::vector<uint32_t> packs_of_places() const {
    struct Pack {
      uint32_t number = 0, nodes = 0;
    };
    const std::vector<size_t> first = connected();
    std::vector<uint32_t> size(places_.size(), 0), seen = size, latest = size,
                                                   packs;  // all but the last one by `first`
    for (const size_t f : first) ++size[f];
    std::map<std::pair<uint32_t, Devices>, Pack> open;
    uint32_t next = 1;
    for (size_t p = 0; p < places_.size(); ++p) {
      const size_t f = first[p];
      if (size[f] > kMostNodes) {
        if (seen[f]++ % kMostNodes == 0) latest[f] = next++;
      } else if (p == f) {
        Pack& pack = open[{places_[p].depth, places_[p].devices}];
        if (pack.nodes + size[f] > kMostNodes) pack = {next++, 0};
        pack.nodes += size[f];
        latest[f] = pack.number;
      }
      packs.push_back(latest[f]);
    }
    return packs;
  }

  // By place: the first one of those that are connected within a segment.
  std::vector<size_t> connected() const {
    std::vector<size_t> first(places_.size());
    for (size_t p = 0; p < places_.size(); ++p) {
      first[p] = p;
      for (const size_t read : places_[p].reads)
        if (may_join(places_[read], places_[p]) && places_[read].depth == places_[p].depth) join(first, read, p);
    }
    for (size_t p = 0; p < places_.size(); ++p) first[p] = root(first, p);
    return first;
  }
  static size_t root(std::vector<size_t>& first, size_t place) {
    while (first[place] != place) place = first[place] = first[first[place]];
    return place;
  }
  static void join(std::vector<size_t>& first, size_t a, size_t b) {
    a = root(first, a), b = root(first, b);
    first[std::max(a, b)] = std::min(a, b);
  }

  // What would be alone joins those that read it, where nobody waits for it earlier.
  void delay() {
    std::vector<uint32_t> latest(places_.size(), kNone), joined = latest;  // so that no reader is delayed
    for (size_t i = places_.size(); i-- > 0;) {
      Place& place = places_[i];
      const bool is_alone = std::none_of(place.reads.begin(), place.reads.end(), [&](size_t read) {
        return places_[read].depth == place.depth && may_join(places_[read], place);
      });
      if (is_alone && joined[i] != kNone && joined[i] == latest[i]) place.depth = joined[i];
      for (const size_t read : place.reads) {
        const bool together = may_join(places_[read], place);
        latest[read] = std::min(latest[read], place.depth - !together);
        if (together) joined[read] = std::min(joined[read], place.depth);
      }
    }
  }

  bool takes(const Instruction& instruction) const {
    if (instruction.kind != InstructionKind::kernel) return false;
    const Call& call = *program_.calls[instruction.index];
    const std::shared_ptr<Compiler>& compiler = compilers_.of(device_of(graph_, instruction));
    return compiler && has_types(instruction, call) && compiler->takes(call) &&
           (compiler->takes_numbers(call) || is_constant(instruction));
  }

  // Results of unknown types are undefined tensors: they are there where nobody reads them. Those that are numbers
  // promote by rules of their own.
  bool has_types(const Instruction& instruction, const Call& call) const {
    for (uint32_t r = 0; r < call.outputs.size(); ++r) {
      const TensorType& type = call.outputs[r];
      const bool is_read = program_.results[instruction.first_result + r] != kNone;
      if (type.wrapped_number || (is_read && type.dtype == DType::unknown)) return false;
    }
    return std::none_of(call.inputs.begin(), call.inputs.end(),
                        [](const TensorType& type) { return type.dtype == DType::unknown; });
  }

  bool is_constant(const Instruction& instruction) const {
    for (uint32_t p = 0; p < instruction.num_params; ++p)
      if (numbers_.change[instruction.first_param + p]) return false;
    return true;
  }

  bool is_large(const Place& place) const {
    const Node& node = graph_.nodes[program_.instructions[place.instruction].node];
    return flops_on_a_device(graph_, node) >= kLeastFlops;
  }

  Devices devices_of(const Instruction& instruction) const {
    const Node& node = graph_.nodes[instruction.node];
    const spmdx::Place place = graph_.mesh ? place_of(graph_, node) : spmdx::Place{};
    return {instruction.sub_axes, place.axis, place.stage, instruction.shard};
  }

  // Of what reads nothing of the window: what no segment holds comes first, and what all devices do before what each
  // one does, so that neither comes between what reads it.
  static uint32_t least_depth(const Place& place) {
    if (!place.taken) return 0;
    return std::get<SubAxisSet>(place.devices) ? 2 : 1;
  }

  const Graph& graph_;
  const Program& program_;
  const Compilers& compilers_;
  const Numbers& numbers_;
  std::vector<Place> places_;
  std::unordered_map<uint32_t, size_t> made_by_;  // of slots: which of the places
};

// By instruction: whether it is one of several in a row that call one op.
std::vector<bool> in_bulk(const Program& program) {
  const auto op_of = [&](size_t index) -> std::string_view {
    const Instruction& instruction = program.instructions[index];
    const bool calls = instruction.kind == InstructionKind::kernel && program.calls[instruction.index];
    return calls ? std::string_view(program.calls[instruction.index]->op) : std::string_view();
  };
  std::vector<bool> found(program.instructions.size(), false);
  for (size_t begin = 0, end = 0; begin < found.size(); begin = end) {
    uint32_t nodes = 1;
    for (end = begin + 1; end < found.size() && op_of(end) == op_of(begin); ++end)
      nodes += program.instructions[end].node != program.instructions[end - 1].node;
    if (nodes >= kLeastInBulk && !op_of(begin).empty())
      std::fill(found.begin() + static_cast<long>(begin), found.begin() + static_cast<long>(end), true);
  }
  return found;
}

}  // namespace

int64_t device_of(const Graph& graph, const Instruction& instruction) {
  if (!graph.mesh) return 0;
  const Mesh& mesh = *graph.mesh;
  const int64_t position = representative(mesh, instruction.sub_axes, instruction.shard);
  const Place place = place_of(graph, graph.nodes[instruction.node]);
  return mesh.device_ids()[static_cast<size_t>(place.whole() ? position : moved_to(mesh, place, position))];
}

std::vector<Unit> units_of(const Graph& graph, const Program& program, const Compilers& compilers,
                           const Numbers& numbers) {
  std::vector<Unit> units;
  const std::vector<bool> bulk = in_bulk(program);
  bool was_bulk = false;
  Window window(graph, program, compilers, numbers);
  NodeId last = kNone;
  uint32_t nodes = 0;
  for (uint32_t index = 0; index < program.instructions.size(); ++index) {
    const Instruction& instruction = program.instructions[index];
    const bool is_new = instruction.node != last;
    const bool moves = instruction.kind == InstructionKind::collective;
    const bool is_full = nodes >= (bulk[index] ? kMostInBulk : kMostNodes);
    if (moves || (is_new && (is_full || (bulk[index] && !was_bulk && nodes > kLeastInBulk)))) {
      window.end(units);
      nodes = 0;
    }
    was_bulk = bulk[index] || (was_bulk && nodes > 0);
    if (moves) {
      units.push_back({{index}, false});
    } else {
      window.add(index);
      nodes += is_new;
    }
    last = instruction.node;
  }
  window.end(units);
  return units;
}

}  // namespace spmdx
