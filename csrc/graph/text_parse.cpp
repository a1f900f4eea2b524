// SPDX-License-Identifier: Apache-2.0
// Graph text: parses it, one statement per line; `//` starts a comment.
#include <algorithm>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "graph/text.h"
#include "graph/text_args.h"
#include "graph/text_type.h"
#include "sharding/cuts.h"

namespace spmdx {
namespace {

constexpr ValueId kMaxValue = 1 << 20;  // a larger number is taken for a typing error
constexpr int64_t kMaxDevices = 1 << 20;

// Reads lines, and builds the graph that they describe.
class Parser {
 public:
  void line(std::string_view text) {
    Cursor cursor(text);
    if (cursor.at_end()) return;
    if (cursor.peek("mesh")) {
      mesh(cursor);
    } else if (cursor.accept("schedule")) {
      graph_.schedule = cursor.quoted();
    } else if (cursor.accept("kinds")) {
      graph_.kinds = cursor.quoted();
    } else if (cursor.accept("repeat")) {
      repeat(cursor);
    } else if (cursor.accept("params")) {
      graph_.num_params = std::max(graph_.num_params, cursor.number<uint32_t>("the number of parameters"));
    } else if (cursor.accept("constrain")) {
      constrain(cursor);
    } else if (cursor.accept("return")) {
      output(cursor);
    } else {
      definition(cursor);
    }
    if (!cursor.at_end()) cursor.fail("the end of the line");
  }
  Graph take() { return std::move(graph_); }

 private:
  void mesh(Cursor& cursor) {
    if (graph_.mesh) throw ShardingError("a second mesh. Expected one mesh, on the first line.");
    if (!graph_.values.empty()) throw ShardingError("the mesh comes after a value. Expected it on the first line.");
    std::vector<int64_t> shape, outer, ids;
    std::vector<std::string> names;
    cursor.expect("mesh");
    cursor.expect("(");
    int64_t size = 1;
    while (!cursor.accept(")")) {
      if (!names.empty()) cursor.expect(",");
      names.push_back(axis_name(cursor));
      cursor.expect("=");
      shape.push_back(axis_part(cursor, names.back(), size));
      outer.push_back(1);
      if (!cursor.accept("*")) continue;
      outer.back() = shape.back();
      shape.back() *= axis_part(cursor, names.back(), size);
    }
    if (cursor.accept("ids")) {
      cursor.expect("[");
      while (!cursor.accept("]")) {
        if (!ids.empty()) cursor.expect(",");
        ids.push_back(cursor.number<int64_t>("a device id"));
      }
    } else {
      for (int64_t id = 0; id < size; ++id) ids.push_back(id);
    }
    graph_.mesh = Mesh::make(std::move(ids), std::move(shape), std::move(names), outer);
  }

  static std::string axis_name(Cursor& cursor) {
    const std::string_view name = cursor.until(" ,:=()");
    if (name.empty()) cursor.fail("the name of an axis");
    return std::string(name);
  }

  // Reads the size of an axis, or one of its two factors, and multiplies it to `size`, the number of devices so far.
  static int64_t axis_part(Cursor& cursor, const std::string& name, int64_t& size) {
    const auto part = cursor.number<int64_t>("the size of an axis");
    if (part < 1 || part > kMaxDevices / size) {
      throw ShardingError("axis '" + name + "' has size " + std::to_string(part) +
                          ". Expected at least 1, and at most 2^20 devices in all.");
    }
    size *= part;
    return part;
  }

  ValueId known_value(Cursor& cursor) {
    cursor.expect("%");
    const auto id = cursor.number<ValueId>("the number of a value");
    if (id < defined_.size() && defined_[id]) return id;
    throw ShardingError("%" + std::to_string(id) + " is not defined. Expected an input or the result of a node.");
  }

  ValueId new_value(Cursor& cursor) {
    cursor.expect("%");
    const auto id = cursor.number<ValueId>("the number of a value");
    if (id >= kMaxValue) {
      throw ShardingError("%" + std::to_string(id) + " is too large. Expected numbers below 2^20.");
    }
    if (id < defined_.size() && defined_[id]) {
      throw ShardingError("%" + std::to_string(id) + " is defined twice. Expected a new number.");
    }
    if (id >= defined_.size()) {
      defined_.resize(id + 1);
      graph_.values.resize(id + 1);
    }
    return id;
  }

  ShardingRef sharding_of(Cursor& cursor, ValueId value, const char* what) {
    const auto [type, sharding] = read_type(cursor, graph_.mesh);
    const TensorType& expected = graph_.values[value].type;
    if (type.dtype == expected.dtype && type.shape == expected.shape) return sharding;
    throw ShardingError(std::string(what) + " of %" + std::to_string(value) + " has type " + str(type) + ". Expected " +
                        str(expected) + ", the type of the value.");
  }

  // The sharding of an annotation is never null: a type without axes means replicated.
  ShardingRef annotation(Cursor& cursor, ValueId value, const char* what) {
    const ShardingRef sharding = sharding_of(cursor, value, what);
    if (sharding) return sharding;
    if (!graph_.mesh) throw ShardingError(std::string(what) + " without a mesh. Expected a mesh on the first line.");
    return replicated(graph_.mesh, graph_.values[value].type.shape.size());
  }

  void repeat(Cursor& cursor) {
    cursor.expect("phase");
    graph_.left_out.phase = cursor.number<uint32_t>("the number of a phase");
    graph_.left_out.times = cursor.number<int64_t>("how many times");
    cursor.expect("times");
  }

  void constrain(Cursor& cursor) {
    const ValueId value = known_value(cursor);
    const ShardingRef sharding = annotation(cursor, value, "the constraint");
    graph_.constraints.push_back({.value = value, .sharding = sharding, .state = cursor.accept("state")});
  }

  void output(Cursor& cursor) {
    Output out{.value = known_value(cursor)};
    if (cursor.accept("!")) out.annotation = annotation(cursor, out.value, "the annotation");
    if (cursor.accept("tied")) {
      const ValueId tied = known_value(cursor);
      const auto is_tied = [&](const Input& input) { return input.value == tied; };
      const auto found = std::ranges::find_if(graph_.inputs, is_tied);
      if (found == graph_.inputs.end()) {
        throw ShardingError("'tied' to %" + std::to_string(tied) + ", which is no input. Expected an input.");
      }
      out.tied = static_cast<uint32_t>(found - graph_.inputs.begin());
    }
    out.donates = cursor.accept("donates");
    out.state = cursor.accept("state");
    graph_.outputs.push_back(out);
  }

  // Reads "%0 = input …", "%1 : T, %2 : T = op(…)", or "op(…)" for an op without results.
  void definition(Cursor& cursor) {
    std::vector<ValueId> results;
    while (cursor.peek("%")) {
      results.push_back(new_value(cursor));
      if (results.back() != results.front() + results.size() - 1) {
        throw ShardingError("the results of a node are not numbered in a row. Expected %" +
                            std::to_string(results.front() + results.size() - 1) + ".");
      }
      if (cursor.accept(":")) {
        const auto [type, sharding] = read_type(cursor, graph_.mesh);
        graph_.values[results.back()] = {.type = type, .sharding = sharding, .why = {}};
      } else if (results.size() > 1 || !cursor.peek("=")) {
        cursor.fail("':' and a type");
      } else {
        cursor.expect("=");
        cursor.expect("input");
        return input(cursor, results[0], false);
      }
      if (!cursor.accept(",")) break;
    }
    if (!results.empty()) cursor.expect("=");
    if (results.size() == 1 && cursor.accept("input")) return input(cursor, results[0], true);
    node(cursor, results);
  }

  void input(Cursor& cursor, ValueId id, bool has_type) {
    Input in{.value = id, .name = {}};
    if (cursor.peek("\"")) in.name = cursor.quoted();
    if (has_type) {
      in.physical = sharding_of(cursor, id, "the physical layout");
    } else {
      std::tie(graph_.values[id].type, in.physical) = read_type(cursor, graph_.mesh);
    }
    if (cursor.accept("!")) in.annotation = annotation(cursor, id, "the annotation");
    in.state = cursor.accept("state");
    defined_[id] = true;
    graph_.inputs.push_back(std::move(in));
  }

  void node(Cursor& cursor, const std::vector<ValueId>& results) {
    Call call{.op = cursor.word("the name of an op"), .args = {}, .inputs = {}, .outputs = {}};
    ArgReader args(cursor, graph_, defined_);
    args.read(call);
    for (ValueId id : results) call.outputs.push_back(graph_.values[id].type);
    Node node;
    node.inputs = args.operands;
    node.output = results.empty() ? static_cast<ValueId>(graph_.values.size()) : results[0];
    attributes(cursor, node);
    node.param = args.params.empty() ? 0 : args.params[0];
    auto count = static_cast<uint32_t>(args.params.size());
    if (cursor.accept("params")) {
      node.param = cursor.number<uint32_t>("the first parameter");
      count = cursor.number<uint32_t>("the number of parameters");
    }
    args.number_params(call, node.param, count);
    if (count) graph_.num_params = std::max(graph_.num_params, node.param + count);
    node.call = intern(seal(std::move(call)));
    for (ValueId id : results) {
      graph_.values[id].producer = static_cast<NodeId>(graph_.nodes.size());
      defined_[id] = true;
    }
    graph_.nodes.push_back(std::move(node));
  }

  // Equal calls are one, as those of a recorder are.
  CallRef intern(CallRef call) {
    for (auto [at, end] = calls_.equal_range(call->hash); at != end; ++at)
      if (*at->second == *call) return at->second;
    return calls_.emplace(call->hash, std::move(call))->second;
  }

  void attributes(Cursor& cursor, Node& node) {
    if (cursor.accept("over")) {
      do {
        node.sub_axes |= sub_axes(cursor);
      } while (cursor.accept(","));
    }
    if (cursor.accept("bytes")) node.bytes = cursor.number<int64_t>("a number of bytes");
    if (cursor.accept("native")) node.native = true;
    if (cursor.accept("cause")) node.cause = cursor.quoted();
    if (cursor.accept("phase")) node.recorded.phase.number = cursor.number<uint32_t>("the number of a phase");
    if (cursor.accept("again")) node.recorded.again = true;
    if (cursor.accept("anew")) node.recorded.again = node.recorded.by_plan = true;
    if (cursor.accept("late")) node.recorded.phase.late = true;
  }

  // Reads axes: "model", or a part of an axis, "model:(pre)size".
  SubAxisSet sub_axes(Cursor& cursor) {
    if (!graph_.mesh) throw ShardingError("'over' without a mesh. Expected a line like mesh(data=2) at the top.");
    std::string axis = axis_name(cursor);
    if (cursor.accept(":")) {
      cursor.expect("(");
      axis += ":(" + std::to_string(cursor.number<int64_t>("the product of the more major sizes")) + ")";
      cursor.expect(")");
      axis += std::to_string(cursor.number<int64_t>("the size of the part"));
    }
    return sub_axis_set(parse_axis(*graph_.mesh, axis));
  }

  Graph graph_;
  std::unordered_multimap<uint64_t, CallRef> calls_;
  std::vector<bool> defined_;  // by value id; the results of a node only after the whole node was read
};

}  // namespace

Graph parse_graph(const std::string& text) {
  Parser parser;
  std::string_view rest = text;
  for (int number = 1; !rest.empty(); ++number) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    try {
      parser.line(line);
    } catch (const ShardingError& error) {
      throw ShardingError("line " + std::to_string(number) + ": " + error.what());
    }
  }
  return parser.take();
}

}  // namespace spmdx
