// SPDX-License-Identifier: Apache-2.0
// Reads the one kind of JSON object that a topology file holds. The same is refused as by spmdx.Topology.
#include "sharding/topology_file.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/cursor.h"
#include "base/error.h"

namespace spmdx {
namespace {

// Calls `field` with each key of an object, in front of its value.
template <class Field>
void each_field(Cursor& text, const Field& field) {
  text.expect("{");
  if (text.accept("}")) return;
  do {
    const std::string key = text.quoted();
    text.expect(":");
    field(key);
  } while (text.accept(","));
  text.expect("}");
}

// Calls `item` in front of each item of a list, which has at least one.
template <class Item>
void each_item(Cursor& text, const Item& item) {
  text.expect("[");
  do item();
  while (text.accept(","));
  text.expect("]");
}

template <class T>
T number(Cursor& text, const std::string& key) {
  constexpr T kEnd = T(int64_t{1} << 53);
  const T value = text.number<T>("a number");
  if (!(value >= 0 && value < kEnd))  // nor is it nan
    throw ShardingError(key + " is out of range. Expected at least 0 and below 2**53.");
  return value;
}

[[noreturn]] void fail_at(const std::string& key, const char* known) {
  throw ShardingError("found '" + key + "'. Expected one of " + known + ".");
}

std::vector<Efficiency> parse_efficiency(Cursor& text) {
  std::vector<Efficiency> points;
  if (text.accept("[]")) return points;
  each_item(text, [&] {
    text.expect("[");
    Efficiency& point = points.emplace_back();
    point.size = text.number<double>("a size");
    text.expect(",");
    point.share = text.number<double>("a share");
    text.expect("]");
  });
  return points;
}

Level parse_level(Cursor& text) {
  Level level;
  each_field(text, [&](const std::string& key) {
    if (key == "algorithm") {
      level.algorithm = algorithm_named(text.quoted());
      return;
    }
    std::vector<Efficiency>* points = key == "efficiency"       ? &level.efficiency
                                      : key == "native_gathers" ? &level.native_gathers
                                      : key == "native_sums"    ? &level.native_sums
                                                                : nullptr;
    if (points) {
      *points = parse_efficiency(text);
      return;
    }
    if (key == "processor_usage") {
      level.processor_usage = text.number<double>("a share");
      return;
    }
    int64_t* field = key == "devices"                ? &level.devices
                     : key == "latency_ns"           ? &level.latency_ns
                     : key == "message_ns"           ? &level.message_ns
                     : key == "picoseconds_per_byte" ? &level.picoseconds_per_byte
                                                     : nullptr;
    if (!field)
      fail_at(key,
              "devices, latency_ns, message_ns, picoseconds_per_byte, algorithm, efficiency, processor_usage, "
              "native_gathers, native_sums");
    *field = number<int64_t>(text, key);
  });
  return level;
}

std::vector<Level> parse_levels(Cursor& text) {
  std::vector<Level> levels;
  each_item(text, [&] { levels.push_back(parse_level(text)); });
  return levels;
}

std::vector<std::pair<DType, double>> parse_rates(Cursor& text) {
  std::vector<std::pair<DType, double>> rates;
  each_field(text, [&](const std::string& key) {
    const auto dtype = parse_dtype(key);
    if (!dtype) fail_at(key, "the dtypes, as f32 and bf16");
    rates.emplace_back(*dtype, text.number<double>("operations in a second"));
  });
  return rates;
}

Hardware parse_hardware(Cursor& text) {
  Hardware hardware;
  each_field(text, [&](const std::string& key) {
    if (key == "name")
      hardware.name = text.quoted();
    else if (key == "memory_bytes")
      hardware.memory_bytes = number<int64_t>(text, key);
    else if (key == "memory_bytes_per_second")
      hardware.memory_bytes_per_second = text.number<double>("bytes in a second");
    else if (key == "memory_efficiency")
      hardware.memory_efficiency = parse_efficiency(text);
    else if (key == "flops_per_second")
      hardware.flops_per_second = parse_rates(text);
    else if (key == "product_efficiency")
      hardware.product_efficiency = parse_efficiency(text);
    else if (key == "launch_ns")
      hardware.launch_ns = number<int64_t>(text, key);
    else if (key == "packing_bytes_per_second")
      hardware.packing_bytes_per_second = text.number<double>("bytes in a second");
    else if (key == "host_bytes_per_second")
      hardware.host_bytes_per_second = text.number<double>("bytes in a second");
    else
      fail_at(key,
              "name, memory_bytes, memory_bytes_per_second, memory_efficiency, flops_per_second, product_efficiency, "
              "launch_ns, packing_bytes_per_second, host_bytes_per_second");
  });
  check(hardware);
  return hardware;
}

}  // namespace

Topology parse_topology(std::string_view json) {
  Cursor text(json);
  Topology topology;
  bool named = false, joined = false;
  each_field(text, [&](const std::string& key) {
    if (key == "name") {
      text.quoted();
      named = true;
    } else if (key == "levels") {
      topology.levels = parse_levels(text);
      joined = true;
    } else if (key == "processors") {
      topology.processors = number<int64_t>(text, key);
    } else if (key == "record_ns") {
      topology.record_ns = number<int64_t>(text, key);
    } else if (key == "hardware") {
      topology.hardware = parse_hardware(text);
    } else {
      fail_at(key, "name, levels, hardware, processors, record_ns");
    }
  });
  if (!text.at_end()) text.fail("the end");
  if (!named || !joined) throw ShardingError("it has no name or no levels. Expected both.");
  check(topology);
  return topology;
}

Topology topology_from(const std::string& name_or_file) {
  const std::vector<std::string_view> names = topology_names();
  const bool named = std::ranges::find(names, name_or_file) != names.end();
  if (named || !std::filesystem::exists(name_or_file) || std::filesystem::is_directory(name_or_file))
    return topology_named(name_or_file);
  std::ifstream file(name_or_file);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  try {
    return parse_topology(text);
  } catch (const ShardingError& error) {
    throw ShardingError("'" + name_or_file + "' is no topology: " + error.what() +
                        " Write one with spmdx.Topology.save or spmdx.calibrate.");
  }
}

}  // namespace spmdx
