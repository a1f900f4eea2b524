// SPDX-License-Identifier: Apache-2.0
// Compilers from Python: segments to compile, what came of them, and the compiler in force.
#include <pybind11/functional.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>

#include "bind/bind.h"
#include "bind/handles.h"
#include "bind/segment_row.h"
#include "bridge/backend/aten_backend.h"
#include "bridge/compilers/compiled_kernel.h"
#include "bridge/compilers/queued_compiler.h"
#include "bridge/python/source.h"
#include "bridge/python/warnings.h"
#include "bridge/recorder/engine.h"
#include "emit/hls.h"
#include "emit/stablehlo.h"
#include "graph/text.h"

namespace spmdx {
namespace {

namespace py = pybind11;
using namespace bind;
using namespace py::literals;
using bridge::QueuedCompiler;
using CompilerRef = std::shared_ptr<QueuedCompiler>;

using Outputs = std::vector<std::tuple<std::string, Shape, int64_t>>;

std::vector<bridge::KernelOutput> outputs_of(const Outputs& rows) {
  std::vector<bridge::KernelOutput> outputs;
  for (const auto& [dtype, shape, over] : rows) outputs.push_back({{dtype_named(dtype), shape}, over});
  return outputs;
}

using Refused = std::function<void(const std::string& source, const std::string& text, const std::string& why)>;

CompilerRef make(std::set<std::string> ops, std::set<std::string> ops_with_numbers,
                 const std::vector<std::string>& dtypes, bool in_place, bool checks, bool waits, Refused refused) {
  auto told = [refused = std::move(refused)](SourceId source, const std::string& text, const std::string& why) {
    refused(bridge::source_text(source), text, why);
  };
  return std::make_shared<QueuedCompiler>(std::move(ops), std::move(ops_with_numbers), dtypes_named(dtypes), in_place,
                                          checks, waits, std::move(told));
}

py::object take(QueuedCompiler& compiler, double seconds) {
  std::optional<bridge::CompileRequest> request;
  {
    const py::gil_scoped_release no_gil;
    request = compiler.take(seconds);
  }
  if (!request) return py::none();
  SourceId source = 0;
  for (const Node& node : request->graph.nodes)
    if (source == 0) source = node.source;
  return py::make_tuple(request->text, segment_row(request->graph), bridge::source_text(source));
}

// What runs the segment is the path of a library, or what can be called.
void deliver(QueuedCompiler& compiler, const std::string& text, const py::object& runs, const Outputs& outputs,
             int64_t compile_ns) {
  std::shared_ptr<Kernel> kernel =
      py::isinstance<py::str>(runs)
          ? bridge::library_kernel(runs.cast<std::string>(), outputs_of(outputs), compiler.checks())
          : bridge::python_kernel(runs.ptr(), outputs_of(outputs), compiler.checks());
  const py::gil_scoped_release no_gil;
  compiler.deliver(text, std::move(kernel), "", compile_ns);
}

// Files by their names, and the estimate.
py::dict hls_row(const HlsProject& project) {
  py::list stages;
  for (const emit::hls::StageEstimate& stage : project.estimate.stages)
    stages.append(py::make_tuple(stage.name, stage.cycles, stage.end));
  const emit::hls::Resources& all = project.estimate.resources;
  return py::dict("files"_a = project.files, "report"_a = project.report, "stages"_a = stages,
                  "latency"_a = project.estimate.latency, "interval"_a = project.estimate.interval, "dsp"_a = all.dsp,
                  "bram18"_a = all.bram18, "lut"_a = all.lut, "ff"_a = all.ff);
}

py::dict hls(const std::string& text, const std::string& number, int64_t unroll,
             const std::map<int64_t, std::vector<double>>& constants) {
  if (unroll < 1) throw ShardingError("unroll is " + std::to_string(unroll) + ". Expected 1 or more products at once.");
  HlsProject project;
  {
    const py::gil_scoped_release no_gil;
    emit::hls::HlsOptions options;
    options.number = emit::hls::number_named(number);
    options.unroll = unroll;
    project = hls_project(parse_graph(text), constants, options);
  }
  return hls_row(project);
}

}  // namespace

void bind_compilers(py::module_& m) {
  py::class_<QueuedCompiler, CompilerRef>(m, "SegmentCompiler")
      .def(py::init(&make), py::arg("ops"), py::arg("ops_with_numbers"), py::arg("dtypes"), py::arg("in_place"),
           py::arg("checks"), py::arg("waits"), py::arg("refused"))
      .def("take", &take, py::arg("seconds"))
      .def("deliver", &deliver, py::arg("text"), py::arg("runs"), py::arg("outputs"), py::arg("compile_ns"))
      .def(
          "refuse",
          [](QueuedCompiler& compiler, const std::string& text, const std::string& why, int64_t compile_ns) {
            const py::gil_scoped_release no_gil;
            compiler.deliver(text, nullptr, why, compile_ns);
          },
          py::arg("text"), py::arg("why"), py::arg("compile_ns"))
      .def("leave", &QueuedCompiler::leave, py::arg("text"), py::arg("nodes"), py::call_guard<py::gil_scoped_release>())
      .def("left",
           [](const QueuedCompiler& compiler) {
             std::vector<std::tuple<std::string, std::string>> rows;
             for (const bridge::LeftCall& left : compiler.left()) rows.emplace_back(left.call->op, left.why);
             return rows;
           })
      .def("waiting", &QueuedCompiler::waiting, py::call_guard<py::gil_scoped_release>())
      .def("stop", &QueuedCompiler::stop, py::call_guard<py::gil_scoped_release>());
  m.def(
      "stablehlo", [](const std::string& text) { return stablehlo(parse_graph(text)); }, py::arg("text"),
      py::call_guard<py::gil_scoped_release>());
  m.def("segment_row", [](const std::string& text) { return segment_row(parse_graph(text)); }, py::arg("text"));
  m.def("hls_project", &hls, py::arg("text"), py::arg("number"), py::arg("unroll"), py::arg("constants"));
  m.def("ops_of_emitters", [] {
    return std::map<std::string, std::vector<std::string>>{{"hls", ops_of_hls()}, {"stablehlo", ops_of_stablehlo()}};
  });
  m.def("warn_later", &bridge::warn_later, py::arg("message"), py::call_guard<py::gil_scoped_release>());
  m.def("warn_of_events", &bridge::warn_of_events, py::call_guard<py::gil_scoped_release>());
  m.def("ask_compiler", [] { bridge::engine().ask_compiler(); }, py::call_guard<py::gil_scoped_release>());
  m.def(
      "set_compilers",
      [](const std::vector<std::optional<CompilerRef>>& compilers, std::vector<uint32_t> of_device) {
        const py::gil_scoped_release no_gil;
        auto made = std::make_shared<Compilers>();
        for (const auto& compiler : compilers) made->all.push_back(compiler.value_or(nullptr));
        made->of_device = std::move(of_device);
        const bool any = std::ranges::any_of(made->all, [](const auto& each) { return each != nullptr; });
        bridge::set_compilers(any ? std::move(made) : nullptr);
      },
      py::arg("compilers"), py::arg("devices"));
}

}  // namespace spmdx
