// SPDX-License-Identifier: Apache-2.0
// Compile: the passes in their order, with a numbered dump after each.
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "passes/exchange.h"
#include "passes/passes.h"

namespace spmdx {
namespace {

// One file per program and pass: 003-02-propagate.txt.
void dump(const Graph& graph, const CompileOptions& options, int program, int step, const char* pass) {
  if (options.dump_dir.empty()) return;
  std::filesystem::create_directories(options.dump_dir);
  char name[96];
  std::snprintf(name, sizeof name, "%03d-%02d-%s.txt", program, step, pass);
  std::ofstream(std::filesystem::path(options.dump_dir) / name) << print(graph, options.source);
}

}  // namespace

const std::vector<Pass>& all_passes() {
  static const std::vector<Pass> passes = {
      {"simplify", [](Graph& graph, const CompileOptions&) { simplify(graph); }},
      {"split-constants", [](Graph& graph, const CompileOptions&) { split_constants(graph); }},
      {"propagate", propagate},
      {"partition", partition},
      {"exchange", [](Graph& graph, const CompileOptions&) { exchange(graph); }},
      {"schedule", schedule},
      {"verify", [](Graph& graph, const CompileOptions&) { verify(graph); }},
  };
  return passes;
}

void compile(Graph& graph, const CompileOptions& options) {
  static std::atomic<int> programs = 0;
  const int program = options.dump_dir.empty() ? 0 : programs++;
  int step = 0;
  dump(graph, options, program, step++, "traced");
  for (const Pass& pass : all_passes()) {
    pass.run(graph, options);
    dump(graph, options, program, step++, pass.name);
  }
}

}  // namespace spmdx
