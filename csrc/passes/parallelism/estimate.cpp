// SPDX-License-Identifier: Apache-2.0
// Estimate: parts become layers of a pipeline, which may have one stage; gradients and updates follow it.
#include "passes/parallelism/estimate.h"

#include <algorithm>
#include <numeric>

#include "passes/pipeline/in_flight.h"
#include "passes/pipeline/make_schedule.h"
#include "passes/pipeline/simulate.h"
#include "passes/pipeline/stage_cuts.h"

namespace spmdx {
namespace {

enum MeshAxis : int { pipe_axis, data_axis };

// How often a part gathers its input and scatters its output where its weights stay cut, as Megatron-LM does it: before
// and behind attention and the perceptron, and twice as often backward.
constexpr int64_t kMovesForward = 2;
constexpr int64_t kMovesOfAPart = 6;  // in all

// The links along the axes of the mesh.
class Links {
 public:
  Links(const Parallelism& parallelism, const Topology& topology) : topology_(topology), data_(parallelism.data) {
    std::vector<int64_t> ids(static_cast<size_t>(parallelism.devices()));
    std::iota(ids.begin(), ids.end(), 0);
    const MeshRef mesh = Mesh::make(std::move(ids), {parallelism.pipe, parallelism.data, parallelism.model});
    const std::vector<uint8_t> levels = sub_axis_levels(mesh, topology);
    const auto set = [&](MeshAxis axis) { return sub_axis_set(mesh->sub_axes_of_axis(axis)); };
    pipe_level_ = level_of(levels, set(pipe_axis));
    group_ = group_of(*mesh, levels, set(data_axis));
  }
  // Of what a device holds whole or gets whole, along "data".
  int64_t ns(Collective kind, int64_t bytes) const {
    if (data_ == 1 || bytes == 0) return 0;
    return std::min(of(kind, bytes, group_), by_level_ns(kind, bytes));
  }
  int64_t wire_bytes(Collective kind, int64_t bytes) const {
    return data_ == 1 ? 0 : spmdx::wire_bytes(kind, bytes, data_);
  }
  int64_t send_ns(int64_t bytes) const {
    return bytes == 0 ? 0 : topology_.cost_ns(Collective::send_recv, bytes, Group(2, pipe_level_));
  }
  // How long a device does not compute for what moves so long along "data", or between stages.
  int64_t busy_ns(int64_t ns) const { return topology_.levels[group_.level()].busy_ns(ns); }
  int64_t busy_sending_ns(int64_t ns) const { return topology_.levels[pipe_level_].busy_ns(ns); }

 private:
  int64_t of(Collective kind, int64_t bytes, const Group& group) const {
    return topology_.cost_ns(kind, spmdx::wire_bytes(kind, bytes, group.size()), group);
  }
  // Over the slowest links a share of it: a sum is scattered before and gathered behind; parts change places first, or
  // last, so that those of one node lie side by side.
  int64_t by_level_ns(Collective kind, int64_t bytes) const {
    Group fast = group_;
    fast.sizes[group_.level()] = 1;
    const int64_t share = (bytes + fast.size() - 1) / fast.size();
    const int64_t slow_ns = of(kind, share, Group(group_.sizes[group_.level()], group_.level()));
    if (kind == Collective::all_reduce)
      return of(Collective::reduce_scatter, bytes, fast) + slow_ns + of(Collective::all_gather, bytes, fast);
    return of(kind, bytes, fast) + slow_ns + of(Collective::all_to_all, bytes / group_.size(), fast);
  }

  const Topology& topology_;
  int64_t data_;
  size_t pipe_level_ = 0;
  Group group_;  // along "data"
};

// What ZeRO makes of the costs of parts: who holds what, and what is moved when.
class Laid {
 public:
  Laid(const Parallelism& parallelism, const ModelCost& cost, const Topology& topology)
      : parallelism_(parallelism), cost_(cost), links_(parallelism, topology) {
    for (const PartCost& part : cost.parts) {
      moves_.push_back(moves(part));
      layers_.push_back(layer(part, moves_.back()));
    }
  }
  std::vector<LayerCost> layers() const {
    std::vector<LayerCost> chain;
    for (size_t part : cost_.order) chain.push_back(layers_[part]);
    return chain;
  }
  // Of one stage, beside what its layers hold: what one part needs on its way, and of ZeRO 3 its gathered parameters
  // and those of the next.
  int64_t passing_bytes(std::span<const size_t> stage) const {
    int64_t most = 0;
    for (size_t index : stage) {
      const PartCost& part = cost_.parts[index];
      most = std::max(most, part.transient_bytes + (zero() == 3 && !moves_[index] ? 2 * part.parameter_bytes : 0));
    }
    return most;
  }
  // What follows the last backward pass: its gradients' sums, most of them beside it, and the update.
  int64_t tail_ns(std::span<const size_t> stage) const {
    int64_t computed = 0, moved = 0, updated = 0, busy = 0;
    for (size_t place = stage.size(); place-- > 0;) {
      const PartCost& part = cost_.parts[stage[place]];
      computed += layers_[stage[place]].backward_ns;
      const int64_t sum = moves_[stage[place]] ? 0 : sum_ns(part);
      moved = std::max(moved, computed) + sum;
      busy += links_.busy_ns(sum);
      updated += part.update_ns / (zero() >= 1 ? parallelism_.data : 1) + gather_after_ns(part);
    }
    return std::max(busy, moved - computed) + updated;
  }
  int64_t wire_bytes(std::span<const size_t> stage) const {
    int64_t bytes = 0;
    for (size_t index : stage) {
      const PartCost& part = cost_.parts[index];
      bytes += parallelism_.microbatches * part.wire_bytes;
      if (moves_[index]) {
        for (const Collective kind : {Collective::all_gather, Collective::reduce_scatter})
          bytes += parallelism_.microbatches * kMovesOfAPart * links_.wire_bytes(kind, whole_output_bytes(part));
        continue;
      }
      const int64_t sums = zero() >= 2 ? parallelism_.microbatches : 1;
      const Collective sum = zero() ? Collective::reduce_scatter : Collective::all_reduce;
      const int64_t gathered = zero() == 3 ? 2 * parallelism_.microbatches : zero() ? 1 : 0;
      bytes += sums * links_.wire_bytes(sum, part.gradient_bytes) +
               gathered * links_.wire_bytes(Collective::all_gather, part.parameter_bytes);
    }
    return bytes;
  }
  int64_t send_ns(size_t part) const { return links_.send_ns(cost_.parts[part].output_bytes); }
  int64_t busy_sending_ns(int64_t ns) const { return links_.busy_sending_ns(ns); }

 private:
  int zero() const { return parallelism_.zero; }
  int64_t share(int64_t bytes, int from_stage) const {
    return zero() >= from_stage ? (bytes + parallelism_.data - 1) / parallelism_.data : bytes;
  }
  LayerCost layer(const PartCost& part, bool moves) const {
    const int64_t gather = zero() == 3 ? links_.ns(Collective::all_gather, part.parameter_bytes) : 0;
    // With several microbatches, gradients that are cut are summed over devices in each.
    const int64_t scatter = zero() >= 2 && parallelism_.microbatches > 1 ? scatter_ns(part) : 0;
    // What is gathered comes before it is needed; what is moved is waited for.
    const int64_t forward = moves ? part.forward_ns + kMovesForward * move_ns(part) : beside(part.forward_ns, gather);
    const int64_t backward = moves ? part.backward_ns + (kMovesOfAPart - kMovesForward) * move_ns(part)
                                   : beside(part.backward_ns, gather + scatter);
    return {.forward_ns = forward,
            .backward_ns = backward + added_ns(part),
            .state_bytes = share(part.parameter_bytes, 3) + share(part.gradient_bytes, 2) + share(part.state_bytes, 1) +
                           part.fixed_bytes,
            .activation_bytes = part.activation_bytes,
            .send_ns = 2 * links_.send_ns(part.output_bytes)};
  }
  int64_t beside(int64_t computed, int64_t moved) const { return std::max(computed + links_.busy_ns(moved), moved); }
  // Whether ZeRO 3 leaves the parameters cut, as it is less to gather the activations of all devices, and to scatter
  // what comes of them, of which gradients need no sums.
  bool moves(const PartCost& part) const {
    if (zero() != 3 || part.output_bytes == 0) return false;
    const int64_t gathered = 2 * links_.ns(Collective::all_gather, part.parameter_bytes) + scatter_ns(part);
    return gathered > kMovesOfAPart * move_ns(part);
  }
  int64_t whole_output_bytes(const PartCost& part) const { return part.output_bytes * parallelism_.data; }
  int64_t move_ns(const PartCost& part) const {
    const int64_t bytes = whole_output_bytes(part);
    return links_.ns(Collective::all_gather, bytes) + links_.ns(Collective::reduce_scatter, bytes);
  }
  // The gradients of all microbatches but the first are added to those before; spread over all of them.
  int64_t added_ns(const PartCost& part) const {
    return share(part.accumulate_ns, 2) * (parallelism_.microbatches - 1) / parallelism_.microbatches;
  }
  int64_t scatter_ns(const PartCost& part) const { return links_.ns(Collective::reduce_scatter, part.gradient_bytes); }
  int64_t sum_ns(const PartCost& part) const {
    return zero() ? scatter_ns(part) : links_.ns(Collective::all_reduce, part.gradient_bytes);
  }
  int64_t gather_after_ns(const PartCost& part) const {
    return zero() == 1 || zero() == 2 ? links_.ns(Collective::all_gather, part.parameter_bytes) : 0;
  }

  const Parallelism& parallelism_;
  const ModelCost& cost_;
  Links links_;
  std::vector<bool> moves_;        // by part: ZeRO 3 leaves it cut, and moves activations
  std::vector<LayerCost> layers_;  // by part
};

// One stage of the pipeline, as its parts have it.
struct StageEstimate {
  int64_t forward_ns = 0, backward_ns = 0, bytes = 0, recomputed_ns = 0, short_bytes = 0;
};

// A share of what the parts keep is computed again from what they begin with, as far as memory asks for it.
StageEstimate estimate_stage(std::span<const LayerCost> layers, std::span<const int64_t> inputs, int64_t in_flight,
                             int64_t held, int64_t limit) {
  StageEstimate stage;
  int64_t kept = 0, droppable = 0;
  for (size_t i = 0; i < layers.size(); ++i) {
    stage.forward_ns += layers[i].forward_ns, stage.backward_ns += layers[i].backward_ns;
    held += layers[i].state_bytes, kept += layers[i].activation_bytes;
    droppable += std::max<int64_t>(0, layers[i].activation_bytes - inputs[i]);
  }
  stage.bytes = held + in_flight * kept;
  if (limit == 0 || stage.bytes <= limit || in_flight == 0) {
    stage.short_bytes = limit == 0 ? 0 : std::max<int64_t>(0, stage.bytes - limit);
    return stage;
  }
  const int64_t wanted = std::min(droppable, (stage.bytes - limit + in_flight - 1) / in_flight);
  if (droppable > 0)
    stage.recomputed_ns = static_cast<int64_t>(static_cast<double>(stage.forward_ns) * static_cast<double>(wanted) /
                                               static_cast<double>(droppable));
  stage.backward_ns += stage.recomputed_ns;
  stage.bytes -= in_flight * wanted;
  stage.short_bytes = std::max<int64_t>(0, stage.bytes - limit);
  return stage;
}

// Sends keep a device from computing for `busy` only, but the links of a rank in the middle carry four for each
// microbatch and chunk.
int64_t pipelined_ns(const Schedule& schedule, const std::vector<StageEstimate>& stages, int64_t send,
                     int64_t busy_sending) {
  std::vector<StageTimes> times;
  for (const StageEstimate& stage : stages) {
    const bool is_at_an_end = &stage == &stages.front() || &stage == &stages.back();
    const double busy_ns = static_cast<double>((is_at_an_end ? 1 : 2) * busy_sending);
    times.push_back({static_cast<double>(stage.forward_ns) + busy_ns,
                     static_cast<double>(stage.backward_ns) / 2 + busy_ns, static_cast<double>(stage.backward_ns) / 2});
  }
  const int64_t busy = (schedule.ranks.size() > 2 ? 4 : 2) * schedule.num_chunks() * schedule.num_microbatches() * send;
  return std::max(busy, static_cast<int64_t>(simulate(in_halves(schedule), times, static_cast<double>(send)).total));
}

// That a stage gets from its neighbours: what the one before it gives, and gradients of what it gives itself.
int64_t sent_bytes(int64_t microbatches, const ModelCost& cost, const std::vector<size_t>& first, size_t stage) {
  const auto given_before = [&](size_t s) {
    return s == 0 || s == first.size() ? 0 : cost.parts[cost.order[first[s] - 1]].output_bytes;
  };
  return microbatches * (given_before(stage) + given_before(stage + 1));
}

// Of a device in the mean, whose process records what the other stages run.
int64_t recorded_ns(const Parallelism& parallelism, const ModelCost& cost, const Topology& topology) {
  int64_t ops = 0;  // of all stages
  for (size_t part : cost.order) {
    const PartCost& of = cost.parts[part];
    ops += parallelism.microbatches * of.ops + (parallelism.microbatches - 1) * of.accumulate_ops + of.update_ops;
  }
  return ops * topology.record_ns * (parallelism.pipe - 1) / parallelism.pipe;
}

// Of a device in the mean, which sends or receives along `boundaries`, as often back.
int64_t sending_ns(const Parallelism& parallelism, int64_t boundaries, int64_t busy_sending) {
  constexpr int64_t kBothWays = 2, kBothEnds = 2;
  return parallelism.microbatches * boundaries * kBothWays * kBothEnds * busy_sending / parallelism.pipe;
}

// The first part of each stage, by times alone: memory is had by computing again.
std::vector<size_t> cut(const std::vector<LayerCost>& layers, const std::vector<int64_t>& in_flight,
                        int64_t microbatches) {
  StageProblem problem;
  problem.layers = layers;
  problem.in_flight = in_flight;
  problem.microbatches = microbatches;
  return choose_stage_cuts(problem).first;
}

}  // namespace

Estimate estimate(const Parallelism& parallelism, const ModelCost& cost, const Topology& topology,
                  int64_t memory_limit) {
  const Laid laid(parallelism, cost, topology);
  const std::vector<LayerCost> layers = laid.layers();
  std::vector<int64_t> inputs(layers.size(), 0);  // of each part: what the one before it gives
  for (size_t i = 1; i < layers.size(); ++i) inputs[i] = cost.parts[cost.order[i - 1]].output_bytes;
  const bool piped = parallelism.pipe > 1;
  const Schedule schedule =
      piped ? make_schedule(parallelism.schedule, parallelism.pipe, parallelism.microbatches) : Schedule{};
  const std::vector<int64_t> in_flight = piped ? in_flight_of_stages(schedule) : std::vector<int64_t>{1};

  Estimate all;
  all.first = piped ? cut(layers, in_flight, parallelism.microbatches) : std::vector<size_t>{0};
  std::vector<StageEstimate> stages;
  std::vector<int64_t> bytes_of_rank(static_cast<size_t>(parallelism.pipe), 0), received = bytes_of_rank;
  int64_t tail = 0, send = 0;
  for (size_t s = 0; s < all.first.size(); ++s) {
    const size_t begin = all.first[s], end = s + 1 < all.first.size() ? all.first[s + 1] : layers.size();
    const size_t rank = s % bytes_of_rank.size();
    const std::span<const size_t> parts(cost.order.data() + begin, end - begin);
    stages.push_back(estimate_stage(std::span(layers).subspan(begin, end - begin),
                                    std::span(inputs).subspan(begin, end - begin), in_flight[s],
                                    laid.passing_bytes(parts), memory_limit / parallelism.chunks));
    tail = std::max(tail, laid.tail_ns(parts));
    if (s + 1 < all.first.size()) send = std::max(send, laid.send_ns(parts.back()));
    received[rank] += laid.wire_bytes(parts) + sent_bytes(parallelism.microbatches, cost, all.first, s);
    all.short_bytes = std::max(all.short_bytes, stages[s].short_bytes);
    all.recomputed_ns = std::max(all.recomputed_ns, parallelism.microbatches * stages[s].recomputed_ns);
    bytes_of_rank[rank] += stages[s].bytes;
  }
  all.peak_bytes = *std::ranges::max_element(bytes_of_rank);
  all.wire_bytes = *std::ranges::max_element(received);
  int64_t worked = 0;  // of all stages
  for (const StageEstimate& stage : stages) worked += parallelism.microbatches * (stage.forward_ns + stage.backward_ns);
  const int64_t busy_sending = laid.busy_sending_ns(send);
  const int64_t end = piped ? pipelined_ns(schedule, stages, send, busy_sending) : worked;
  const int64_t busy = worked / parallelism.pipe + tail + recorded_ns(parallelism, cost, topology) +
                       sending_ns(parallelism, static_cast<int64_t>(stages.size()) - 1, busy_sending);
  all.step_ns = topology.shared_ns(busy, end + tail, parallelism.devices());
  return all;
}

}  // namespace spmdx
