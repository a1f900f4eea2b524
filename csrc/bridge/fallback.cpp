// SPDX-License-Identifier: Apache-2.0
// The warning and the error for ops without a rule.
#include "bridge/fallback.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <atomic>

#include "base/error.h"
#include "bridge/tracer.h"

namespace spmdx::bridge {
namespace {

std::atomic<bool> are_errors{false}, warned{false};

std::string what_happens(const Fallback& fallback) {
  const std::string line = source_text(fallback.source);
  return (line.empty() ? "" : line + ": ") + fallback.op + " has no sharding rule: " + std::to_string(fallback.bytes) +
         " bytes a device are gathered, and it runs whole on every device. Expected an op with a rule. Use one, or add "
         "a "
         "rule as docs/add_an_op.md shows";
}

void warn(const std::string& message) {
  const pybind11::gil_scoped_acquire gil;
  if (PyErr_WarnEx(PyExc_UserWarning, message.c_str(), 1) != 0) throw python_error();
}

}  // namespace

void set_fallbacks_are_errors(bool errors) { are_errors = errors; }

void mind_fallbacks(const Plan& plan) {
  for (const Fallback& fallback : plan.fallbacks) {
    if (fallback.bytes == 0) continue;
    if (are_errors) throw ShardingError(what_happens(fallback) + ", or unset SPMDX_FALLBACK.");
    if (!warned.exchange(true))
      warn(what_happens(fallback) +
           ". Said once: spmdx.explain().fallbacks lists all, SPMDX_FALLBACK=error makes it an error.");
  }
}

}  // namespace spmdx::bridge
