// SPDX-License-Identifier: Apache-2.0
// Options as a number: all that a plan may depend on. A field that is added does not compile until it is named here.
#include "passes/settings/options.h"

#include <bit>
#include <functional>

namespace spmdx {
namespace {

uint64_t combine(uint64_t h, std::string_view text) { return hash_combine(h, std::hash<std::string_view>{}(text)); }
uint64_t combine(uint64_t h, double number) { return hash_combine(h, std::bit_cast<uint64_t>(number)); }
uint64_t combine(uint64_t h, int64_t number) { return hash_combine(h, static_cast<uint64_t>(number)); }

uint64_t combine(uint64_t h, const std::vector<Efficiency>& points) {
  for (const auto& [size, share] : points) h = combine(combine(h, size), share);
  return hash_combine(h, points.size());
}

uint64_t combine(uint64_t h, const Hardware& hardware) {
  const auto& [name, bytes, memory, memory_efficiency, flops, product_efficiency, launch_ns, packing, host] = hardware;
  h = combine(combine(combine(combine(h, name), bytes), memory), memory_efficiency);
  for (const auto& [dtype, rate] : flops) h = combine(hash_combine(h, static_cast<uint64_t>(dtype)), rate);
  return combine(combine(combine(combine(h, product_efficiency), launch_ns), packing), host);
}

uint64_t combine(uint64_t h, const Level& level) {
  const auto& [devices, latency_ns, message_ns, picoseconds, algorithm, efficiency, usage, gathers, sums] = level;
  h = combine(combine(combine(combine(h, devices), latency_ns), message_ns), picoseconds);
  h = combine(combine(hash_combine(h, static_cast<uint64_t>(algorithm)), efficiency), usage);
  return combine(combine(h, gathers), sums);
}

uint64_t combine(uint64_t h, const NativePolicy& policy) {
  const auto& [way, unmeasured, sums] = policy;
  h = hash_combine(h, way ? static_cast<uint64_t>(*way) + 1 : 0);
  return hash_combine(hash_combine(h, static_cast<uint64_t>(unmeasured)), sums);
}

uint64_t combine(uint64_t h, const Topology& topology) {
  const auto& [levels, hardware, processors, record_ns, natives] = topology;
  for (const Level& level : levels) h = combine(h, level);
  h = combine(h, natives);
  return combine(combine(combine(hash_combine(h, levels.size()), hardware), processors), record_ns);
}

uint64_t combine(uint64_t h, const DeviceKind& kind) {
  const auto& [name, hardware, own_memory, ops, dtypes] = kind;
  h = hash_combine(combine(combine(h, name), hardware), own_memory);
  for (const std::string& op : ops) h = combine(h, op);
  for (const DType dtype : dtypes) h = hash_combine(h, static_cast<uint64_t>(dtype) + 1);
  return h;
}

uint64_t combine(uint64_t h, const DeviceKinds& all) {
  const auto& [kinds, of_device, axis] = all;
  for (const DeviceKind& kind : kinds) h = combine(h, kind);
  for (const uint32_t kind : of_device) h = hash_combine(h, kind);
  return combine(hash_combine(h, kinds.size()), axis);
}

}  // namespace

uint64_t hash(const CompileOptions& options) {
  const auto& [topology, kinds, dump_dir, source, bucket, budget, limit, recomputes] = options;
  const uint64_t h = combine(combine(uint64_t{0}, topology), kinds);
  return hash_combine(combine(combine(combine(h, bucket), budget), limit), recomputes);
}

}  // namespace spmdx
