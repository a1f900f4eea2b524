// SPDX-License-Identifier: Apache-2.0
// Estimate: follows streams through stages, and adds up what these take.
#include "emit/hls/estimate.h"

#include <algorithm>
#include <cstdio>

namespace spmdx::emit::hls {
namespace {

// When elements of a stream come: the first, and the last of so many.
struct Arrival {
  double first = -1, last = 0;
  int64_t count = 1;
  double at(int64_t element) const {
    if (count <= 1) return last;
    return first + (last - first) * static_cast<double>(element) / static_cast<double>(count - 1);
  }
};

// One stage after the other, as a clock of its own that waits for what it reads.
class Times {
 public:
  Times(const Design& design, const Uses& uses) : design_(design), uses_(uses), arrivals_(design.streams.size()) {
    for (size_t s = 0; s < arrivals_.size(); ++s) arrivals_[s].count = numel(design.streams[s].shape);
  }

  StageEstimate of(uint32_t number) {
    const Stage& stage = design_.stages[number];
    now_ = busy_ = 0;
    read_.clear();
    for (const Nest& nest : stage.once) run(nest, 1);
    for (int64_t r = 0; r < stage.repeats; ++r)
      for (const Nest& nest : stage.repeated) run(nest, stage.repeats);
    for (const uint32_t stream : writes(stage))
      if (uses_.of_stream[stream].size() > 1) spread(stream);
    return {stage.name, busy_, static_cast<int64_t>(now_), {}};
  }

 private:
  void run(const Nest& nest, int64_t repeats) {
    const Number& kind = design_.options.number;
    const int64_t trips = numel(nest.trips), interval = interval_of(nest, kind), depth = depth_of(nest, kind);
    const double length = static_cast<double>(trips * interval);
    double start = now_, end = 0;
    for (const uint32_t stream : nest.reads) start = std::max(start, arrivals_[stream].at(read_[stream]));
    end = start + length;
    for (const uint32_t stream : nest.reads) {
      const int64_t count = std::min(trips, arrivals_[stream].count / repeats);
      read_[stream] += count;
      const double after = length / static_cast<double>(std::max<int64_t>(1, count));
      end = std::max(end, arrivals_[stream].at(read_[stream] - 1) + after);
    }
    for (const uint32_t stream : nest.writes) {
      const int64_t count = std::min(trips, arrivals_[stream].count / repeats);
      const double each = (end - start) / static_cast<double>(std::max<int64_t>(1, count));
      Arrival& arrival = arrivals_[stream];
      if (arrival.first < 0) arrival.first = start + each - interval + depth;
      arrival.last = end - interval + depth;
    }
    now_ = end + depth;
    busy_ += trips * interval + depth;
  }

  void spread(uint32_t stream) {
    arrivals_[stream].first += 2;
    arrivals_[stream].last += 2;
  }

  const Design& design_;
  const Uses& uses_;
  std::vector<Arrival> arrivals_;
  std::map<uint32_t, int64_t> read_;  // elements of streams, by the stage that is looked at
  double now_ = 0;
  int64_t busy_ = 0;
};

Resources of_nest(const Nest& nest, const Number& number) {
  Resources found{0, 0, 40, 40};  // counters and control
  for (const Operator op : nest.ops) found += cost_of(op, number).resources * nest.lanes;
  return found;
}

Resources of_stage(const Design& design, const Stage& stage) {
  const Number& number = design.options.number;
  Resources found;
  for (const auto* nests : {&stage.once, &stage.repeated})
    for (const Nest& nest : *nests) found += of_nest(nest, number);
  for (const Buffer& buffer : stage.buffers)
    found += memory(std::max<int64_t>(1, buffer.size), bits_of(buffer.elem, number)) * buffer.lanes;
  for (const uint32_t rom : stage.roms) {
    const Rom& of = design.roms[rom];
    found += memory(static_cast<int64_t>(of.numbers.size()) / of.lanes, bits_of(of.elem, number)) * of.lanes;
  }
  return found;
}

// Those that do not hold all their elements have two places.
Resources of_streams(const Design& design, const Uses& uses) {
  Resources found;
  for (uint32_t s = 0; s < design.streams.size(); ++s) {
    const auto readers = static_cast<int64_t>(uses.of_stream[s].size());
    if (readers == 0) continue;
    const int64_t bits = bits_of(design.streams[s].elem, design.options.number);
    const Resources all = memory(numel(design.streams[s].shape), bits);
    found += holds_all(design, uses, s) ? all : memory(2, bits);
    if (readers > 1) found += all * readers;
  }
  return found;
}

std::string row(const std::string& name, const std::string& cycles, const std::string& end, const Resources& of) {
  char line[200];
  std::snprintf(line, sizeof line, "%-32s %10s %10s %6lld %7lld %8lld %8lld\n", name.c_str(), cycles.c_str(),
                end.c_str(), static_cast<long long>(of.dsp), static_cast<long long>(of.bram18),
                static_cast<long long>(of.lut), static_cast<long long>(of.ff));
  return line;
}

}  // namespace

HlsEstimate estimate(const Design& design, const Uses& uses) {
  HlsEstimate found;
  Times times(design, uses);
  for (uint32_t s = 0; s < design.stages.size(); ++s) {
    if (!uses.is_alive[s]) continue;
    found.stages.push_back(times.of(s));
    StageEstimate& stage = found.stages.back();
    stage.resources = of_stage(design, design.stages[s]);
    found.interval = std::max(found.interval, stage.cycles);
    found.latency = std::max(found.latency, stage.end);
    found.resources += stage.resources;
  }
  found.resources += of_streams(design, uses);
  // An AXI master for each tensor that comes or goes, and the registers that start a run.
  found.resources += Resources{0, 2, 700, 900} * static_cast<int64_t>(design.ports.size());
  return found;
}

std::string report(const HlsEstimate& of, const Design& design) {
  char line[200];
  std::snprintf(line, sizeof line, "%-32s %10s %10s %6s %7s %8s %8s\n", "stage", "cycles", "end", "DSP", "BRAM18",
                "LUT", "FF");
  std::string text = "Numbers are " + str(design.options.number) + ". Estimated, and never synthesised:\n\n" + line;
  for (const StageEstimate& stage : of.stages)
    text += row(stage.name, std::to_string(stage.cycles), std::to_string(stage.end), stage.resources);
  text += row("all, with streams and ports", "", "", of.resources);
  const double us = static_cast<double>(of.latency) * design.options.clock_ns / 1000;
  std::snprintf(line, sizeof line, "\nlatency %lld cycles (%.2f us at %g ns), a run every %lld cycles\n",
                static_cast<long long>(of.latency), us, design.options.clock_ns, static_cast<long long>(of.interval));
  return text + line;
}

}  // namespace spmdx::emit::hls
