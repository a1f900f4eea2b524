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

Level parse_level(Cursor& text) {
  Level level;
  each_field(text, [&](const std::string& key) {
    int64_t* field = key == "devices"                ? &level.devices
                     : key == "latency_ns"           ? &level.latency_ns
                     : key == "message_ns"           ? &level.message_ns
                     : key == "picoseconds_per_byte" ? &level.picoseconds_per_byte
                                                     : nullptr;
    if (!field) fail_at(key, "devices, latency_ns, message_ns, picoseconds_per_byte");
    *field = number<int64_t>(text, key);
  });
  return level;
}

std::vector<Level> parse_levels(Cursor& text) {
  std::vector<Level> levels;
  text.expect("[");
  do levels.push_back(parse_level(text));
  while (text.accept(","));
  text.expect("]");
  return levels;
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
    } else if (key == "picoseconds_per_flop") {
      topology.picoseconds_per_flop = number<double>(text, key);
    } else if (key == "picoseconds_per_local_byte") {
      topology.picoseconds_per_local_byte = number<int64_t>(text, key);
    } else {
      fail_at(key, "name, levels, picoseconds_per_flop, picoseconds_per_local_byte");
    }
  });
  if (!text.at_end()) text.fail("the end");
  if (!named || !joined) throw ShardingError("it has no name or no levels. Expected both.");
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
