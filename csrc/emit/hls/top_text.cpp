// SPDX-License-Identifier: Apache-2.0
// Text: the top function, its header, and constant arrays.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "emit/hls/build.h"
#include "emit/hls/text.h"

namespace spmdx::emit::hls {
namespace {

constexpr const char* kSpdx = "// SPDX-License-Identifier: Apache-2.0\n";

std::string interface_text(const Port& port) {
  const std::string pragma = "#pragma HLS INTERFACE ", name = port.name();
  return pragma + "m_axi port=" + name + " offset=slave bundle=" + name +
         " depth=" + std::to_string(numel(port.shape)) + "\n" + pragma + "s_axilite port=" + name + "\n";
}

std::string stream_text(const Design& design, uint32_t stream, const std::string& name, bool holds_all) {
  const std::string depth = std::to_string(holds_all ? std::max<int64_t>(2, numel(design.streams[stream].shape)) : 2);
  return "  hls::stream<" + std::string(type_text(design.streams[stream].elem)) + "> " + name + "(\"" + name +
         "\");\n#pragma HLS STREAM variable=" + name + " depth=" + depth + "\n";
}

std::string streams_text(const Design& design, const Uses& uses) {
  std::string text;
  for (uint32_t s = 0; s < design.streams.size(); ++s) {
    const size_t readers = uses.of_stream[s].size();
    if (readers == 0) continue;
    const std::string name = "s" + std::to_string(s);
    text += stream_text(design, s, name, holds_all(design, uses, s));
    for (size_t k = 0; readers > 1 && k < readers; ++k)
      text += stream_text(design, s, name + "_" + std::to_string(k), true);
  }
  return text;
}

// The stream as a stage is given it.
std::string given(const Uses& uses, uint32_t stream, uint32_t stage) {
  const std::vector<uint32_t>& readers = uses.of_stream[stream];
  std::string name = "s" + std::to_string(stream);
  if (readers.size() > 1) name += "_" + std::to_string(std::ranges::find(readers, stage) - readers.begin());
  return name;
}

std::string call_text(const Design& design, const Uses& uses, uint32_t number) {
  const Stage& stage = design.stages[number];
  std::string arguments, spreads;
  const auto add = [&](const std::string& one) { arguments += (arguments.empty() ? "" : ", ") + one; };
  if (stage.port >= 0) add(design.ports[stage.port].name());
  for (const uint32_t stream : reads(stage)) add(given(uses, stream, number));
  for (const uint32_t stream : writes(stage)) {
    if (uses.of_stream[stream].empty()) continue;
    const std::string name = "s" + std::to_string(stream);
    add(name);
    if (uses.of_stream[stream].size() < 2) continue;
    spreads += "  spread_" + name + "(" + name;
    for (size_t k = 0; k < uses.of_stream[stream].size(); ++k) spreads += ", " + name + "_" + std::to_string(k);
    spreads += ");\n";
  }
  return "  " + stage.name + "(" + arguments + ");\n" + spreads;
}

std::string rom_text(const Design& design, uint32_t number) {
  const Rom& rom = design.roms[number];
  const int64_t size = static_cast<int64_t>(rom.numbers.size()) / rom.lanes;
  std::string text = "static const " + std::string(type_text(rom.elem)) + " w" + std::to_string(number) + "[" +
                     std::to_string(rom.lanes) + "][" + std::to_string(size) + "] = {";
  for (int64_t lane = 0; lane < rom.lanes; ++lane) {
    text += lane ? "},\n{" : "\n{";
    for (int64_t i = 0; i < size; ++i) {
      const double element = rom.numbers[lane * size + i];
      char number_of[40];
      std::snprintf(number_of, sizeof number_of, "%.9g", element);
      const bool is_plain = is_real(rom.elem) && std::isfinite(element);
      text += (i ? i % 8 ? ", " : ",\n" : "") + (is_plain ? number_of : literal(design, rom.elem, element));
    }
  }
  return text + "}};\n";
}

}  // namespace

std::string top_arguments(const Design& design) {
  std::string text;
  for (const Port& port : design.ports)
    text += (text.empty() ? "" : ", ") + std::string(port.is_input ? "const " : "") + type_text(port.elem) + "* " +
            port.name();
  return text;
}

std::string top_text(const Design& design, const Uses& uses) {
  std::string text =
      kSpdx + std::string("// The stages of the design, and the top function that connects them.\n") +
      "#include \"top.h\"\n\n#include \"cycles.h\"\n#include \"functions.h\"\n#include \"weights.h\"\n\n";
  for (uint32_t s = 0; s < design.stages.size(); ++s)
    if (uses.is_alive[s]) text += stage_text(design, uses, s) + "\n";
  for (uint32_t s = 0; s < design.streams.size(); ++s)
    if (uses.of_stream[s].size() > 1) text += spread_text(design, uses, s) + "\n";
  text += "void top(" + top_arguments(design) + ") {\n";
  for (const Port& port : design.ports) text += interface_text(port);
  text += "#pragma HLS INTERFACE s_axilite port=return\n#pragma HLS DATAFLOW\n" + streams_text(design, uses);
  for (uint32_t s = 0; s < design.stages.size(); ++s)
    if (uses.is_alive[s]) text += call_text(design, uses, s);
  return text + "}\n";
}

std::string top_header_text(const Design& design, const Uses& uses) {
  const Number& number = design.options.number;
  std::string text = kSpdx + std::string("// The types of the design, and its top function.\n#pragma once\n");
  if (number.is_fixed)
    text += "#if __has_include(\"ap_fixed.h\")\n#include \"ap_fixed.h\"\n#else\n#include \"own_fixed.h\"\n#endif\n";
  text +=
      "#if __has_include(\"hls_stream.h\")\n#include \"hls_stream.h\"\n#else\n#include \"own_stream.h\"\n#endif\n\n";
  text += "typedef " + number_type(number) + " number_t;\ntypedef " + wide_type(number) + " acc_t;\n\n";
  text += "void top(" + top_arguments(design) + ");\n\n// Names of stages, for the counts of a run.\n#define STAGES ";
  for (uint32_t s = 0; s < design.stages.size(); ++s)
    if (uses.is_alive[s]) text += "\\\n  NAME(" + std::to_string(s) + ", " + design.stages[s].name + ") ";
  for (uint32_t s = 0; s < design.streams.size(); ++s)
    if (uses.of_stream[s].size() > 1)
      text += "\\\n  NAME(" + std::to_string(design.stages.size() + s) + ", spread_s" + std::to_string(s) + ") ";
  return text + "\n#define STAGE_COUNT " + std::to_string(design.stages.size() + design.streams.size()) + "\n";
}

std::string weights_text(const Design& design, const Uses& uses) {
  std::vector<bool> is_used(design.roms.size());
  for (uint32_t s = 0; s < design.stages.size(); ++s)
    for (const uint32_t rom : design.stages[s].roms) is_used[rom] = is_used[rom] || uses.is_alive[s];
  std::string text =
      kSpdx + std::string("// Constant arrays: rows are read at once.\n#pragma once\n#include \"top.h\"\n\n");
  for (uint32_t rom = 0; rom < design.roms.size(); ++rom)
    if (is_used[rom]) text += rom_text(design, rom);
  return text;
}

}  // namespace spmdx::emit::hls
