// SPDX-License-Identifier: Apache-2.0
// Projects for high-level synthesis: reads constants, writes files.
#include "tools/write_hls.h"

#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>

#include "emit/hls.h"
#include "graph/text.h"

namespace spmdx {

int write_hls(const std::string& text, const std::string& folder, const std::string& number, int64_t unroll) {
  const Graph graph = parse_graph(text);
  std::map<int64_t, std::vector<double>> constants;
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    std::ifstream file(folder + "/constant" + std::to_string(i) + ".bin", std::ios::binary);
    if (!file) continue;
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    const auto* first = reinterpret_cast<const double*>(bytes.data());
    constants[static_cast<int64_t>(i)].assign(first, first + bytes.size() / sizeof(double));
  }
  emit::hls::HlsOptions options;
  options.number = emit::hls::number_named(number);
  options.unroll = unroll;
  const HlsProject project = hls_project(graph, constants, options);
  std::filesystem::create_directories(folder + "/data");
  for (const auto& [name, content] : project.files) std::ofstream(folder + "/" + name) << content;
  std::cout << project.report;
  return 0;
}

int list_hls_ops() {
  for (const std::string& op : ops_of_hls()) std::cout << op << "\n";
  return 0;
}

}  // namespace spmdx
