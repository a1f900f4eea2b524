// SPDX-License-Identifier: Apache-2.0
// Text: the functions of stages.
#include <algorithm>

#include "emit/hls/cost.h"
#include "emit/hls/text.h"

namespace spmdx::emit::hls {
namespace {

std::string stream_parameter(const Design& design, uint32_t stream) {
  return "hls::stream<" + std::string(type_text(design.streams[stream].elem)) + ">& s" + std::to_string(stream);
}

bool is_read(const Uses& uses, uint32_t stream) { return !uses.of_stream[stream].empty(); }

std::string parameters(const Design& design, const Uses& uses, const Stage& stage) {
  std::string text;
  const auto add = [&](const std::string& one) { text += (text.empty() ? "" : ", ") + one; };
  if (stage.port >= 0) {
    const Port& port = design.ports[stage.port];
    add((port.is_input ? "const " : "") + std::string(type_text(port.elem)) + "* " + port.name());
  }
  for (const uint32_t stream : reads(stage)) add(stream_parameter(design, stream));
  for (const uint32_t stream : writes(stage))
    if (is_read(uses, stream)) add(stream_parameter(design, stream));
  return text;
}

// Rows of an array that are read at once lie in memories of their own.
std::string partition(const std::string& name, int64_t lanes) {
  return lanes == 1 ? "" : "#pragma HLS ARRAY_PARTITION variable=" + name + " complete dim=1\n";
}

std::string buffer_text(const Buffer& buffer) {
  const std::string type = type_text(buffer.elem);
  if (buffer.size == 0) return "  " + type + " " + buffer.name + " = " + type + "(0);\n";
  return "  static " + type + " " + buffer.name + "[" + std::to_string(buffer.lanes) + "][" +
         std::to_string(buffer.size) + "];\n" + partition(buffer.name, buffer.lanes);
}

std::string body_text(const Nest& nest, const Uses& uses, const std::string& indent) {
  std::string text;
  for (size_t i = 0; i < nest.lines.size(); ++i) {
    const Line& line = nest.lines[i];
    if (line.writes >= 0 && !is_read(uses, static_cast<uint32_t>(line.writes))) continue;
    const bool in_lanes = nest.lanes_from > 0 && i == nest.lanes_from;
    if (in_lanes)
      text += indent + "for (int u = 0; u < " + std::to_string(nest.lanes) + "; ++u) {\n#pragma HLS UNROLL\n";
    text += indent + (nest.lanes_from > 0 && i >= nest.lanes_from ? "  " : "") + line.text + "\n";
  }
  return text + (nest.lanes_from > 0 ? indent + "}\n" : "");
}

// After how many iterations an element is needed again, which the vendor's tool may not see.
std::string dependence_text(const Nest& nest) {
  std::string text;
  for (const std::string& array : nest.carried)
    if (nest.distance > 1)
      text += "#pragma HLS DEPENDENCE variable=" + array + " inter RAW distance=" + std::to_string(nest.distance) +
              " true\n";
  return text;
}

std::string nest_text(const Nest& nest, const Uses& uses, const Number& number, std::string indent) {
  const std::string interval = std::to_string(interval_of(nest, number));
  std::string text = indent + "LOOP(" + interval + ", " + std::to_string(depth_of(nest, number)) + ");\n", ends;
  const Shape trips = nest.trips.empty() ? Shape{1} : nest.trips;
  for (size_t d = 0; d < trips.size(); ++d) {
    const std::string counter = "i" + std::to_string(d);
    text += indent + "for (int " + counter + " = 0; " + counter + " < " + std::to_string(trips[d]) + "; ++" + counter +
            ") {\n";
    ends = indent + "}\n" + ends;
    indent += "  ";
  }
  text += "#pragma HLS PIPELINE II=" + interval + "\n" + dependence_text(nest) + body_text(nest, uses, indent);
  indent.resize(indent.size() - 2 * trips.size());
  return text + indent + std::string(2 * trips.size(), ' ') + "STEP;\n" + ends + indent + "DRAIN;\n";
}

}  // namespace

std::string stage_text(const Design& design, const Uses& uses, uint32_t number) {
  const Stage& stage = design.stages[number];
  std::string text = "// " + stage.op + "\nstatic void " + stage.name + "(" + parameters(design, uses, stage) + ") {\n";
  text += "  STAGE(" + std::to_string(number) + ");\n";
  for (const uint32_t rom : stage.roms) text += partition("w" + std::to_string(rom), design.roms[rom].lanes);
  for (const Buffer& buffer : stage.buffers) text += buffer_text(buffer);
  for (const Nest& nest : stage.once) text += nest_text(nest, uses, design.options.number, "  ");
  if (!stage.repeated.empty()) {
    text += "  for (int r = 0; r < " + std::to_string(stage.repeats) + "; ++r) {\n";
    for (const Nest& nest : stage.repeated) text += nest_text(nest, uses, design.options.number, "    ");
    text += "  }\n";
  }
  return text + "  LEAVE;\n}\n";
}

std::string spread_text(const Design& design, const Uses& uses, uint32_t stream) {
  const std::string name = "s" + std::to_string(stream), type = type_text(design.streams[stream].elem);
  std::string outs, writes;
  for (size_t k = 0; k < uses.of_stream[stream].size(); ++k) {
    outs += ", hls::stream<" + type + ">& " + name + "_" + std::to_string(k);
    writes += "    " + name + "_" + std::to_string(k) + ".write(v);\n";
  }
  return "// " + name + " for each stage that reads it\nstatic void spread_" + name + "(hls::stream<" + type + ">& " +
         name + outs + ") {\n  STAGE(" + std::to_string(design.stages.size() + stream) +
         ");\n  LOOP(1, 2);\n  for (int i0 = 0; i0 < " + std::to_string(numel(design.streams[stream].shape)) +
         "; ++i0) {\n#pragma HLS PIPELINE II=1\n    const " + type + " v = " + name + ".read();\n" + writes +
         "    STEP;\n  }\n  DRAIN;\n  LEAVE;\n}\n";
}

}  // namespace spmdx::emit::hls
