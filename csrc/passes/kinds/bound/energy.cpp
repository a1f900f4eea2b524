// SPDX-License-Identifier: Apache-2.0
#include "passes/kinds/bound/energy.h"

#include <algorithm>

namespace spmdx {
namespace {

constexpr int64_t kPriceOfAll = 4096;  // the prices of all devices together: sums of costs fit 64 bits
constexpr int64_t kPriceStep = 2048;   // by how much the price of a device rises that works for all others, at first
constexpr int kPriceSteps = 60;        // in which prices are sought for the whole time
constexpr int kMorePriceSteps = 8;     // and for what is nearly too much between two times

std::vector<int64_t> thinned(std::vector<int64_t> times, size_t most) {
  std::sort(times.begin(), times.end());
  times.erase(std::unique(times.begin(), times.end()), times.end());
  if (times.size() <= most) return times;
  std::vector<int64_t> some;
  for (size_t i = 0; i < most; ++i) some.push_back(times[i * (times.size() - 1) / std::max<size_t>(1, most - 1)]);
  return some;
}

}  // namespace

std::vector<int64_t> TaskEnergy::starts(size_t most) const {
  std::vector<int64_t> times{0};
  for (uint32_t j = 0; j < graph_.tasks(); ++j) {
    int64_t least = kNever;
    for (uint32_t d = 0; d < graph_.devices(); ++d)
      if (windows_.can(j, d)) least = std::min(least, windows_.head(j, d));
    times.push_back(least);
  }
  return thinned(std::move(times), most);
}

std::vector<int64_t> TaskEnergy::ends(size_t most) const {
  std::vector<int64_t> times{windows_.within_ns()};
  for (uint32_t j = 0; j < graph_.tasks(); ++j) {
    int64_t least = kNever;
    for (uint32_t d = 0; d < graph_.devices(); ++d)
      if (windows_.can(j, d)) least = std::min(least, windows_.tail(j, d));
    times.push_back(windows_.within_ns() - least);
  }
  return thinned(std::move(times), most);
}

// Sums of parts rounded down are below the whole rounded down.
void TaskEnergy::scale_bytes() {
  int64_t bytes = 0, ns = 0;
  for (uint32_t j = 0; j < graph_.tasks(); ++j) {
    int64_t most = 0;
    for (uint32_t d = 0; d < graph_.devices(); ++d)
      if (graph_.runs(j, d)) most = std::max(most, graph_.ns(j, d));
    bytes += graph_.least_bytes(j) / graph_.tasks();
    ns += most / graph_.tasks();
  }
  const int64_t divisor = bytes / std::max<int64_t>(1, ns) + 1, factor = ns / std::max<int64_t>(1, bytes) + 1;
  for (uint32_t j = 0; j < graph_.tasks(); ++j)
    task_bytes_.push_back(divisor > 1 ? graph_.least_bytes(j) / divisor : graph_.least_bytes(j) * factor);
  for (uint32_t d = 0; d < graph_.devices(); ++d) {
    const int64_t some = std::min(graph_.memory(d), (bytes + 1) * 2 * graph_.tasks());  // more than all is as good
    memory_.push_back(divisor > 1 ? some / divisor : some * factor);
  }
}

// What of each cluster must run between two times, by device.
void TaskEnergy::measure(int64_t begin, int64_t end) {
  const bool whole = begin == 0 && end == windows_.within_ns();
  work_.clear();
  bytes_.clear();
  const uint32_t devices = graph_.devices();
  for (uint32_t c = 0; c < graph_.tasks(); ++c) {
    if (windows_.members(c).empty()) continue;
    bool all = true;
    int64_t bytes = 0;
    for (const uint32_t j : windows_.members(c)) bytes += whole ? task_bytes_[j] : 0;
    for (uint32_t d = 0; d < devices; ++d) {
      int64_t sum = windows_.can(c, d) ? 0 : kNever;
      if (sum == 0)
        for (const uint32_t j : windows_.members(c)) {
          const int64_t ns = graph_.ns(j, d), from = windows_.head(j, d) + ns;
          const int64_t to = windows_.within_ns() - windows_.tail(j, d) - ns;
          sum += std::max<int64_t>(0, std::min({ns, from - begin, end - to, end - begin}));
        }
      all = all && sum > 0;
      work_.push_back(sum);
    }
    if (all || bytes > 0)
      bytes_.push_back(bytes);
    else
      work_.resize(work_.size() - devices);
    visits_ += static_cast<int64_t>(devices * windows_.members(c).size());
  }
}

// Who is used how much if everything goes where it costs least; and what that costs.
TaskEnergy::Used TaskEnergy::used_at(const DevicePrices& prices) const {
  const size_t devices = prices.time.size();
  Used used{std::vector<int64_t>(devices, 0), std::vector<int64_t>(devices, 0), 0};
  for (size_t c = 0; c < bytes_.size(); ++c) {
    const int64_t* work = &work_[c * devices];
    size_t best = devices;
    int64_t least = kNever;
    for (size_t d = 0; d < devices; ++d) {
      if (work[d] == kNever) continue;
      const int64_t cost = prices.time[d] * work[d] + prices.memory[d] * bytes_[c];
      if (cost < least) least = cost, best = d;
    }
    used.time[best] += work[best];
    used.memory[best] += bytes_[c];
    used.cost += least;
  }
  return used;
}

// Of so much time of all devices, and their memory.
int64_t TaskEnergy::worth(const DevicePrices& prices, int64_t length) const {
  int64_t sum = 0;
  for (size_t d = 0; d < prices.time.size(); ++d) sum += prices.time[d] * length + prices.memory[d] * memory_[d];
  return sum;
}

// Prices rise where more than the mean is done, or more is kept than there is room for.
void TaskEnergy::change(DevicePrices& prices, const Used& used, int64_t length, int step) const {
  const auto devices = static_cast<int64_t>(prices.time.size());
  int64_t mean = 0, all = 0;
  for (const int64_t ns : used.time) mean += ns / devices;
  const int64_t unit = std::max<int64_t>(1, length * devices / kPriceStep);
  for (int64_t d = 0; d < devices; ++d) {
    int64_t &time = prices.time[d], &memory = prices.memory[d];
    time = std::max<int64_t>(0, time + (used.time[d] - mean) / unit * 4 / (4 + step));
    memory = std::max<int64_t>(0, memory + (used.memory[d] - memory_[d]) / unit * 4 / (4 + step));
    all += time;
  }
  for (int64_t d = 0; d < devices && all > 0; ++d) {
    prices.time[d] = prices.time[d] * kPriceOfAll / all;
    prices.memory[d] = std::min(kPriceOfAll, prices.memory[d] * kPriceOfAll / all);
  }
}

// The best prices of some steps stay.
bool TaskEnergy::cheap_enough(int64_t length, int steps) {
  DevicePrices prices = prices_;
  int64_t most = std::numeric_limits<int64_t>::min();
  for (int step = 0; step <= steps; ++step) {
    const Used used = used_at(prices);
    const int64_t spare = worth(prices, length) - used.cost;
    visits_ += static_cast<int64_t>(work_.size());
    if (spare < 0) return false;
    if (-spare > most) most = -spare, prices_ = prices;
    if (step == steps || (step == 0 && spare > worth(prices, length) / 8)) break;
    change(prices, used, length, step);
  }
  return true;
}

bool TaskEnergy::holds(size_t most_times) {
  scale_bytes();
  const DevicePrices even{std::vector<int64_t>(graph_.devices(), kPriceOfAll / graph_.devices()),
                          std::vector<int64_t>(graph_.devices(), 0)};
  prices_ = even;
  measure(0, windows_.within_ns());
  if (!cheap_enough(windows_.within_ns(), kPriceSteps)) return false;
  DevicePrices of_all = prices_;
  std::fill(of_all.memory.begin(), of_all.memory.end(), 0);
  const std::vector<int64_t> ends = this->ends(most_times);
  for (const int64_t begin : starts(most_times))
    for (const int64_t end : ends) {
      if (end <= begin) continue;
      measure(begin, end);
      for (const DevicePrices& prices : {of_all, even}) {
        prices_ = prices;
        if (!cheap_enough(end - begin, kMorePriceSteps)) return false;
      }
    }
  return true;
}

}  // namespace spmdx
