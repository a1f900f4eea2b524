// SPDX-License-Identifier: Apache-2.0
// Parallelism: how a program for one device is laid over many, as data, tensor and pipeline parallelism in one.
#pragma once
#include <compare>
#include <cstdint>
#include <string>
#include <vector>

namespace spmdx {

// The devices are a mesh of pipe × data × model; "model" has the fastest links.
struct Parallelism {
  int64_t data = 1, model = 1, pipe = 1;
  int64_t microbatches = 1;
  int zero = 0;               // the stage of ZeRO along "data"; 0: none
  std::string schedule = {};  // of the pipeline
  int64_t chunks = 1;         // stages that a coordinate of "pipe" holds

  int64_t devices() const { return data * model * pipe; }
  auto operator<=>(const Parallelism&) const = default;
};

// What there is to choose from.
struct ParallelismSpace {
  int64_t devices = 1;
  int64_t samples = 1;     // of a batch
  int64_t most_model = 1;  // of "model", which may also have all devices, for a batch in one piece
  int64_t most_stages = 1;
  std::vector<int> zero = {0};              // stages that may be tried
  std::vector<std::string> schedules = {};  // of pipelines
};

// All of it in which every device has equally many samples of a microbatch, in the order of the members. A microbatch
// has a number of samples that divides what a device has of a batch: one of the smallest, or all.
std::vector<Parallelism> parallelisms(const ParallelismSpace& space);

}  // namespace spmdx
