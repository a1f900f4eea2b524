// SPDX-License-Identifier: Apache-2.0
// Reports of memory, as plain dicts.
#include "bind/seeing/memory.h"

#include <pybind11/stl.h>

#include <array>

#include "bridge/plans/memory.h"
#include "bridge/python/source.h"
#include "bridge/recorder/engine.h"
#include "passes/memory/peak.h"
#include "passes/report/recomputed.h"

namespace spmdx {

namespace py = pybind11;
using namespace py::literals;

py::dict memory_report(const Plan& plan, const MemoryUseOfRun& use) {
  const Graph& graph = plan.executable->graph();
  std::array<int64_t, memory_kinds_in_all()> bytes{};
  py::list held;
  for (const bridge::Holder& one : bridge::holders_of(graph, use)) {
    bytes[static_cast<size_t>(one.kind)] += one.bytes;
    held.append(py::dict("kind"_a = std::string(name(one.kind)), "op"_a = one.op, "type"_a = one.type,
                         "bytes"_a = one.bytes, "source"_a = one.source));
  }
  py::dict by_kind;
  for (size_t k = 0; k < bytes.size(); ++k) by_kind[py::str(std::string(name(static_cast<MemoryKind>(k))))] = bytes[k];
  py::list again;
  for (const Recomputed& row : recomputed(graph, bridge::engine().options().topology))
    again.append(py::dict("op"_a = row.op, "count"_a = row.count, "flops"_a = row.flops, "ns"_a = row.ns,
                          "source"_a = bridge::source_text(row.source)));
  std::vector<int64_t> measured;
  for (const MeasuredPeak& peak : plan.executable->measured_peaks()) measured.push_back(peak.bytes);
  return py::dict("peak_bytes"_a = plan.executable->peak().bytes, "host_bytes"_a = predict_host_bytes(graph),
                  "at"_a = bridge::worst_moment(graph, use), "by_kind"_a = by_kind, "held"_a = held,
                  "recomputed"_a = again,
                  "measured"_a = measured.empty() ? py::object(py::none()) : py::object(py::cast(measured)));
}

}  // namespace spmdx
