// SPDX-License-Identifier: Apache-2.0
// Stage cuts: the fewest moves under a bound on the longest stage, by dynamic programming; the bound by bisection.
#include "passes/pipeline/stage_cuts.h"

#include <algorithm>
#include <optional>
#include <queue>
#include <string>

namespace spmdx {
namespace {

constexpr auto kNever = std::numeric_limits<int64_t>::max();

// Sums over the first layers of the chain: a stage is a difference of two.
struct Prefixes {
  explicit Prefixes(const std::vector<LayerCost>& layers) : work{0}, state{0}, activations{0}, send{0} {
    for (const LayerCost& layer : layers) {
      work.push_back(work.back() + layer.forward_ns + layer.backward_ns);
      state.push_back(state.back() + layer.state_bytes);
      activations.push_back(activations.back() + layer.activation_bytes);
      send.push_back(layer.send_ns);
    }
    send.back() = 0;  // nothing follows the last layer
  }
  // Of a stage from layer `begin` to before `end`.
  int64_t ns(size_t begin, size_t end) const { return work[end] - work[begin] + send[end]; }
  int64_t bytes(size_t begin, size_t end, int64_t in_flight) const {
    return state[end] - state[begin] + in_flight * (activations[end] - activations[begin]);
  }

  std::vector<int64_t> work, state, activations;
  std::vector<int64_t> send;  // no sum: what it costs to end a stage there
};

// The least of values at places, of which only those from some place on are asked for.
class SuffixLeast {
 public:
  void add(size_t place, int64_t value) {
    while (!entries_.empty() && entries_.back().value >= value) entries_.pop_back();
    if (value < kNever) entries_.push_back({place, value});
  }
  struct Entry {
    size_t place;
    int64_t value;
  };
  // Null where there is none.
  const Entry* from(size_t place) const {
    const auto found =
        std::partition_point(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.place < place; });
    return found == entries_.end() ? nullptr : &*found;
  }

 private:
  std::vector<Entry> entries_;  // places and values rise
};

class StageSearch {
 public:
  StageSearch(const StageProblem& problem, int64_t memory_limit)
      : problem_(problem), sums_(problem.layers), num_layers_(problem.layers.size()), begin_by_memory_(stages()) {
    for (size_t s = 0; s < stages(); ++s) begin_by_memory_[s] = begins_by_memory(problem.in_flight[s], memory_limit);
  }

  // Of the cuts whose longest stage takes `most_ns` at most, those with the smallest sum; nothing where none fits.
  std::optional<StageCuts> cheapest(int64_t most_ns) const {
    const std::vector<size_t> by_time = begins_by_time(most_ns);
    std::vector<std::vector<size_t>> begin_of(stages(), std::vector<size_t>(num_layers_ + 1));
    std::vector<int64_t> least(num_layers_ + 1, kNever);  // by end: what the stages so far send
    least[0] = 0;
    for (size_t s = 0; s < stages(); ++s) least = append_stage(s, by_time, least, begin_of[s]);
    if (least[num_layers_] == kNever) return std::nullopt;
    std::vector<size_t> first(stages());
    for (size_t s = stages(), end = num_layers_; s-- > 0; end = first[s]) first[s] = begin_of[s][end];
    return cuts_at(std::move(first));
  }

  // No stage can be shorter than the longest layer, nor all shorter than their mean.
  int64_t least_longest() const {
    int64_t least = sums_.work.back() / static_cast<int64_t>(stages());
    for (size_t i = 0; i < num_layers_; ++i) least = std::max(least, sums_.work[i + 1] - sums_.work[i]);
    return least;
  }

  size_t stages() const { return problem_.in_flight.size(); }

 private:
  // By end of a stage: the first begin with which it fits.
  std::vector<size_t> begins_by_memory(int64_t in_flight, int64_t limit) const {
    std::vector<size_t> begins(num_layers_ + 1, 0);
    for (size_t end = 1, begin = 0; end <= num_layers_; begins[end++] = begin)
      while (begin < end && sums_.bytes(begin, end, in_flight) > limit) ++begin;
    return begins;
  }
  std::vector<size_t> begins_by_time(int64_t most_ns) const {
    std::vector<size_t> begins(num_layers_ + 1, 0);
    for (size_t end = 1; end <= num_layers_; ++end) {
      const int64_t least_work = sums_.work[end] + sums_.send[end] - most_ns;
      begins[end] = std::lower_bound(sums_.work.begin(), sums_.work.end(), least_work) - sums_.work.begin();
    }
    return begins;
  }

  // From what the stages before `s` send, by end, to what those up to `s` send.
  std::vector<int64_t> append_stage(size_t s, const std::vector<size_t>& by_time, const std::vector<int64_t>& before,
                                    std::vector<size_t>& begin_of) const {
    std::vector<int64_t> now(num_layers_ + 1, kNever);
    SuffixLeast least;
    for (size_t end = s + 1; end + (stages() - 1 - s) <= num_layers_; ++end) {
      least.add(end - 1, before[end - 1]);
      const auto* found = least.from(std::max(by_time[end], begin_by_memory_[s][end]));
      if (!found) continue;
      now[end] = found->value + sums_.send[end];
      begin_of[end] = found->place;
    }
    return now;
  }

  StageCuts cuts_at(std::vector<size_t> first) const {
    StageCuts cuts;
    for (size_t s = 0; s < stages(); ++s) {
      const size_t end = s + 1 < stages() ? first[s + 1] : num_layers_;
      cuts.stage_ns.push_back(sums_.ns(first[s], end));
      cuts.stage_bytes.push_back(sums_.bytes(first[s], end, problem_.in_flight[s]));
      cuts.sum_ns += cuts.stage_ns.back();
      cuts.longest_ns = std::max(cuts.longest_ns, cuts.stage_ns.back());
    }
    cuts.step_ns = cuts.sum_ns + (problem_.microbatches - 1) * cuts.longest_ns;
    cuts.first = std::move(first);
    return cuts;
  }

  const StageProblem& problem_;
  const Prefixes sums_;
  const size_t num_layers_;
  std::vector<std::vector<size_t>> begin_by_memory_;  // by stage
};

// Cuts whose longest stage takes from `low` to `high` ns: no sum is below `sum`, so no step is below `step`.
struct Interval {
  int64_t low, high, sum, step;
  bool operator<(const Interval& other) const { return step > other.step; }  // the most hopeful one comes first
};

// Intervals of the longest stage are halved, the most hopeful first, until none can hold a shorter step. `best` has the
// smallest sum of all cuts.
StageCuts shorten(const StageSearch& search, StageCuts best, int64_t microbatches) {
  std::priority_queue<Interval> intervals;
  const auto add = [&](int64_t low, int64_t high, int64_t sum) {
    if (low <= high) intervals.push({low, high, sum, sum + (microbatches - 1) * low});
  };
  add(search.least_longest(), best.longest_ns - 1, best.sum_ns);
  while (!intervals.empty() && intervals.top().step < best.step_ns) {
    const Interval interval = intervals.top();
    intervals.pop();
    const int64_t middle = interval.low + (interval.high - interval.low) / 2;
    add(middle + 1, interval.high, interval.sum);
    std::optional<StageCuts> found = search.cheapest(middle);
    if (!found) continue;
    add(interval.low, found->longest_ns - 1, found->sum_ns);
    if (found->step_ns < best.step_ns) best = *std::move(found);
  }
  return best;
}

size_t fullest(const StageCuts& cuts) {
  return std::max_element(cuts.stage_bytes.begin(), cuts.stage_bytes.end()) - cuts.stage_bytes.begin();
}

// With the smallest limit under which there are cuts. Nothing fits the limit of the problem.
StageCuts nearest_to_fit(const StageProblem& problem) {
  StageCuts nearest = StageSearch(problem, kNever).cheapest(kNever).value();
  int64_t low = problem.limit_of_stage(), high = nearest.stage_bytes[fullest(nearest)];
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    std::optional<StageCuts> found = StageSearch(problem, middle).cheapest(kNever);
    if (!found) {
      low = middle;
      continue;
    }
    nearest = *std::move(found);
    high = nearest.stage_bytes[fullest(nearest)];
  }
  return nearest;
}

void check(const StageProblem& problem) {
  internal_check(!problem.in_flight.empty() && problem.microbatches >= 1 && problem.chunks >= 1,
                 "a pipeline without stages or microbatches");
  internal_check(problem.names.empty() || problem.names.size() == problem.layers.size(), "layers without a name");
  for (const int64_t count : problem.in_flight) internal_check(count >= 0, "a stage with negative microbatches");
  for (const LayerCost& layer : problem.layers)
    internal_check(
        std::min({layer.forward_ns, layer.backward_ns, layer.state_bytes, layer.activation_bytes, layer.send_ns}) >= 0,
        "a layer with a negative cost");
  const size_t layers = problem.layers.size(), stages = problem.in_flight.size();
  if (layers < stages)
    throw ShardingError("the model has " + std::to_string(layers) + " layers for " + std::to_string(stages) +
                        " stages. Expected a layer for each stage. Use fewer stages, or cut at smaller modules.");
}

std::string layers_text(const StageProblem& problem, size_t first, size_t last) {
  const auto name = [&](size_t layer) {
    return problem.names.empty() ? std::to_string(layer) : problem.names.at(layer);
  };
  const std::string what = problem.names.empty() ? "layer" : "module";
  if (first == last) return what + " " + name(first);
  return what + "s " + name(first) + " to " + name(last);
}

std::string limit_text(const StageProblem& problem) {
  if (problem.chunks == 1) return "the memory limit of " + std::to_string(problem.memory_limit);
  return std::to_string(problem.limit_of_stage()) + ", its part of the memory limit of " +
         std::to_string(problem.memory_limit);
}

std::string memory_text(const StageProblem& problem, const StageCuts& nearest, size_t stage) {
  const size_t end = stage + 1 < nearest.first.size() ? nearest.first[stage + 1] : problem.layers.size();
  const int64_t bytes = nearest.stage_bytes[stage];
  return "stage " + std::to_string(stage) + " (" + layers_text(problem, nearest.first[stage], end - 1) + ") needs " +
         std::to_string(bytes) + " bytes on a device, " + std::to_string(bytes - problem.limit_of_stage()) +
         " more than " + limit_text(problem) + ". Expected cuts where every stage fits, and of all cuts into " +
         std::to_string(nearest.first.size()) +
         " stages these come nearest. Raise the limit by spmdx.set_memory_limit, use more stages or smaller "
         "microbatches, or cut the parameters along another axis.";
}

}  // namespace

StageMemoryError::StageMemoryError(const StageProblem& problem, const StageCuts& nearest, size_t stage)
    : ShardingError(memory_text(problem, nearest, stage)),
      stage(stage),
      first(nearest.first[stage]),
      last((stage + 1 < nearest.first.size() ? nearest.first[stage + 1] : problem.layers.size()) - 1),
      bytes_short(nearest.stage_bytes[stage] - problem.limit_of_stage()) {}

StageCuts choose_stage_cuts(const StageProblem& problem) {
  check(problem);
  const StageSearch search(problem, problem.limit_of_stage());
  std::optional<StageCuts> smallest_sum = search.cheapest(kNever);
  if (!smallest_sum) {
    const StageCuts nearest = nearest_to_fit(problem);
    throw StageMemoryError(problem, nearest, fullest(nearest));
  }
  return shorten(search, *std::move(smallest_sum), problem.microbatches);
}

}  // namespace spmdx
