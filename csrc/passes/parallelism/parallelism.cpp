// SPDX-License-Identifier: Apache-2.0
// Parallelism: the enumeration of a space.
#include "passes/parallelism/parallelism.h"

#include <algorithm>

#include "passes/pipeline/make_schedule.h"

namespace spmdx {
namespace {

constexpr size_t kMicrobatchSizes = 5;  // the smallest that are tried, beside the whole

std::vector<int64_t> divisors(int64_t n) {
  std::vector<int64_t> found;
  for (int64_t d = 1; d * d <= n; ++d) {
    if (n % d) continue;
    found.push_back(d);
    if (d * d != n) found.push_back(n / d);
  }
  std::ranges::sort(found);
  return found;
}

// How many microbatches are made of what a device has of a batch.
std::vector<int64_t> microbatches_of(int64_t samples) {
  std::vector<int64_t> sizes = divisors(samples);
  if (sizes.size() > kMicrobatchSizes) sizes.erase(sizes.begin() + kMicrobatchSizes, sizes.end() - 1);
  std::vector<int64_t> counts;
  for (int64_t size : sizes) counts.push_back(samples / size);
  std::ranges::sort(counts);
  return counts;
}

void add_orders(const Parallelism& shape, const ParallelismSpace& space, std::vector<Parallelism>& all) {
  if (shape.pipe == 1) {
    all.push_back(shape);
    return;
  }
  for (const std::string& schedule : space.schedules) {
    Parallelism found = shape;
    found.schedule = schedule;
    found.chunks = make_schedule(schedule, 2, 1).num_chunks();
    if (found.pipe * found.chunks <= space.most_stages) all.push_back(std::move(found));
  }
}

}  // namespace

std::vector<Parallelism> parallelisms(const ParallelismSpace& space) {
  std::vector<Parallelism> all;
  for (int64_t data : divisors(space.devices)) {
    if (space.samples % data) continue;
    for (int64_t model : divisors(space.devices / data)) {
      const int64_t pipe = space.devices / data / model;
      if ((model > space.most_model && model != space.devices) || pipe > space.most_stages) continue;
      for (int64_t microbatches : microbatches_of(space.samples / data)) {
        if (model > space.most_model && microbatches > 1) continue;
        for (int zero : space.zero)
          if (zero == 0 || data > 1)
            add_orders({.data = data, .model = model, .pipe = pipe, .microbatches = microbatches, .zero = zero}, space,
                       all);
      }
    }
  }
  return all;
}

}  // namespace spmdx
