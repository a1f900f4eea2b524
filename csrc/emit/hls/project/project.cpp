// SPDX-License-Identifier: Apache-2.0
// Project: its files, those that are the same in each one and those that are not.
#include "emit/hls/project/project.h"

#include <cmath>
#include <cstdio>

#include "emit/hls/text.h"

namespace spmdx::emit::hls {
namespace {

std::string text_of(double number) {
  char text[40];
  std::snprintf(text, sizeof text, "%.3g", number);
  return text;
}

std::string files_of(const Port& port, const std::string& name) {
  return "\"data/" + name + std::to_string(port.place) + ".bin\"";
}

std::string names(const Design& design) {
  std::string text;
  for (const Port& port : design.ports) text += (text.empty() ? "" : ", ") + port.name();
  return text;
}

std::string main_text(const Design& design) {
  std::string arrays, loads, checks;
  for (const Port& port : design.ports) {
    const std::string name = port.name(), count = std::to_string(numel(port.shape));
    arrays += "static " + std::string(type_text(port.elem)) + " " + name + "[" + count + "];\n";
    if (port.is_input) {
      loads += "  load(" + files_of(port, "in") + ", " + name + ", " + count + ");\n";
    } else {
      checks += "  is_right &= compared(\"" + name + "\", " + files_of(port, "result") + ", " +
                files_of(port, "expected") + ", " + name + ", " + count + ") <= limit;\n";
    }
  }
  return "\n" + arrays +
         "\nint main(int count, char** words) {\n  const double limit = count > 1 ? std::atof(words[1]) : INFINITY;\n" +
         loads + "  top(" + names(design) + ");\n  bool is_right = true;\n" + checks +
         "  report_cycles();\n  return is_right ? 0 : 1;\n}\n";
}

// A library that is called with addresses of tensors: only floats lie there as they do in the design.
std::string entry_text(const Design& design) {
  std::string arguments;
  size_t in = 0, out = 0;
  for (const Port& port : design.ports) {
    const std::string type = type_text(port.elem), at = std::to_string(port.is_input ? in++ : out++);
    arguments += (arguments.empty() ? "" : ",\n      ") +
                 (port.is_input ? "static_cast<const " + type + "*>(in[" : "static_cast<" + type + "*>(out[") + at +
                 "])";
  }
  return R"(// SPDX-License-Identifier: Apache-2.0
// The design as a function of C: addresses of its tensors, in the order of its arguments. It gives what went wrong, or
// null.
#include <exception>
#include <string>

)"
         "#include \"top.h\"\n"
         R"(
extern "C" const char* segment(const void* const* in, void* const* out) {
  static std::string said;
  (void)in;
  try {
    top()" +
         arguments + R"();
  } catch (const std::exception& error) {
    said = error.what();
    return said.c_str();
  }
  return nullptr;
}
)";
}

std::string makefile_text(const Design& design) {
  const Number& number = design.options.number;
  const std::string limit = text_of(number.is_fixed ? std::ldexp(32, -number.fraction()) : 1e-4);
  return "# SPDX-License-Identifier: Apache-2.0\n# `make` builds the design with g++ and runs it; LIMIT is the largest "
         "error "
         "that is none.\nCXXFLAGS ?= -O1\nLIMIT ?= " +
         limit +
         "\nFLAGS = $(CXXFLAGS) -std=c++17 -Wall -Wno-unknown-pragmas -Wno-unused\n\nrun: "
         "testbench\n\t./testbench "
         "$(LIMIT)\ntestbench: testbench.cpp top.cpp $(wildcard *.h)\n\t$(CXX) $(FLAGS) -o $@ testbench.cpp "
         "top.cpp\nlibsegment.so: entry.cpp top.cpp $(wildcard *.h)\n\t$(CXX) $(FLAGS) -fPIC -fno-gnu-unique -shared "
         "-o $@ entry.cpp "
         "top.cpp\nclean:\n\trm -f testbench libsegment.so data/result*.bin\n.PHONY: run clean\n";
}

std::string vendor_text(const Design& design) {
  return "# SPDX-License-Identifier: Apache-2.0\n# For AMD's Vitis HLS: vitis_hls -f vendor.tcl. Never "
         "run.\nopen_project "
         "-reset vendor\nset_top top\nadd_files top.cpp\nadd_files -tb testbench.cpp\nadd_files -tb "
         "data\nopen_solution "
         "-reset solution\nset_part {" +
         design.options.part + "}\ncreate_clock -period " + text_of(design.options.clock_ns) +
         " -name default\ncsim_design\ncsynth_design\ncosim_design\nexit\n";
}

std::string readme_text(const Design& design, const std::string& report) {
  return "# A circuit, by spmdx\n\n`top.cpp` has a function for each stage, and `top`, which connects them by streams. "
         "`make` "
         "builds it with g++ and runs it\non `data`: that was done with projects like this one. `vendor.tcl` is for "
         "AMD's "
         "Vitis HLS: no vendor's tool has ever been\nrun on one, so that what is below is an estimate, and pragmas and "
         "timing "
         "are unproven. The vendor's headers take the place\nof `own_fixed.h` and `own_stream.h` where they are found; "
         "these "
         "only stand in for them.\n\nNumbers are `" +
         number_type(design.options.number) + "`, sums `" + wide_type(design.options.number) +
         "`. Integers have 32 bits.\n\n```\n" + report + "```\n";
}

}  // namespace

std::map<std::string, std::string> project_files(const Design& design, const Uses& uses, const std::string& report) {
  const bool is_fixed = design.options.number.is_fixed;
  std::map<std::string, std::string> files = {
      {"top.cpp", top_text(design, uses)},
      {"top.h", top_header_text(design, uses)},
      {"weights.h", weights_text(design, uses)},
      {"cycles.h", kCycles},
      {"own_stream.h", kOwnStream},
      {"functions.h", std::string(kFunctions) + (is_fixed ? kFixedFunctions : kFloatFunctions)},
      {"testbench.cpp", kTestbench + main_text(design)},
      {"Makefile", makefile_text(design)},
      {"vendor.tcl", vendor_text(design)},
      {"README.md", readme_text(design, report)},
      {"report.txt", report},
  };
  if (is_fixed) files["own_fixed.h"] = kOwnFixed;
  if (!is_fixed) files["entry.cpp"] = entry_text(design);
  return files;
}

}  // namespace spmdx::emit::hls
